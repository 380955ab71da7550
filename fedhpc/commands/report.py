"""`fedhpc report`: from records to tables and plots."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedhpc.errors import DONE, ConfigError

if TYPE_CHECKING:
    from fedhpc.report.domainbed import SweepReport

HELP = """Write tables and plots of one or several runs, or of a sweep, from their records alone.

example:
  fedhpc report runs/first runs/second --out runs/comparison
  fedhpc report sweeps/first --style domainbed

One directory (a run, a folder of runs, a sweep of ours or of DomainBed's) gets DIR/report; several runs get `report` in
the folder they share.
"""


_STYLES = "layout of text and LaTeX (default: fedhpc); fedmedicl, for medical runs: the original's log files, too"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own options."""
    parser.add_argument("directories", metavar="DIR", nargs="+", type=Path, help="run directory, or a folder of runs")
    parser.add_argument("--out", metavar="DIR", type=Path, help="where the report goes")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    sweeps = parser.add_argument_group("for a sweep, or for runs that hold environments out")
    sweeps.add_argument("--style", choices=("fedhpc", "domainbed", "fedmedicl"), help=_STYLES)
    sweeps.add_argument("--criteria", metavar="NAME,NAME", help="how models are selected (default: the sweep's)")
    sweeps.add_argument("--compat", action="store_true", help="DomainBed's rules for ties, NaN and unfinished trials")


def run(args: argparse.Namespace, overrides: list[str]) -> int:
    """Run the command; returns the exit code."""
    from fedhpc.report import domainbed, report
    from fedhpc.report.federations import federated_results, read_federations
    from fedhpc.report.files import PAGE, SELECTION
    from fedhpc.report.studies import with_notes
    from fedhpc.report.sweeps import reads
    from fedhpc.report.tables import json_summary

    asked = (args.style and args.style != "fedmedicl") or args.criteria or args.compat
    names = args.criteria.split(",") if args.criteria else None
    if any(reads(directory) for directory in args.directories):
        if len(args.directories) != 1:
            raise ConfigError("a sweep is reported on alone: give one directory")
        compat = args.compat or None
        _tell(domainbed.report_sweep(args.directories[0], args.out, args.style or "fedhpc", names, compat), args.json)
        return DONE
    federations = read_federations(args.directories)
    if asked and federations is None:
        raise ConfigError("--style, --criteria and --compat are for sweeps and runs with generalize.test_envs")
    links = () if federations is None else (SELECTION,)
    written = report(args.directories, args.out, args.style or "fedhpc", links)
    if args.json and federations is None:
        print(_with_medical(with_notes(json_summary(written.runs), written.notes), written.files), end="")
    if not args.json:
        print(written.text.rstrip())
        print(f"\nreport in {written.directory}: {', '.join(sorted(f.name for f in written.files))}")
    if federations is not None:
        compat = args.compat or args.style == "domainbed"
        found = federated_results(federations, names, compat)
        _tell(
            domainbed.write_report(
                found, written.directory, args.style or "fedhpc", "Model selection", SELECTION, (PAGE,)
            ),
            args.json,
        )
    return DONE


def _with_medical(summary: str, files: Sequence[Path]) -> str:
    """A JSON object as text, of medical runs with their report under the key `medical`."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.name == "medical.json"]
    return json.dumps({**json.loads(summary), "medical": found[0]}, indent=1) + "\n" if found else summary


def _tell(swept: SweepReport, as_json: bool) -> None:
    print(swept.json if as_json else swept.text, end="")
    if not as_json:
        print(f"\nreport in {swept.directory}: {', '.join(sorted(f.name for f in swept.files))}")
