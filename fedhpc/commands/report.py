"""`fedhpc report`: from records to tables and plots."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedhpc.errors import DONE

HELP = """Write tables and plots of one or several runs, from their records alone.

example:
  fedhpc report runs/first runs/second --out runs/comparison

One directory (a run, or a folder of runs) gets DIR/report; several get `report` in the folder they share.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own options."""
    parser.add_argument("directories", metavar="DIR", nargs="+", type=Path, help="run directory, or a folder of runs")
    parser.add_argument("--out", metavar="DIR", type=Path, help="where the report goes")


def run(args: argparse.Namespace, overrides: list[str]) -> int:
    """Run the command; returns the exit code."""
    from fedhpc.report import report

    written = report(args.directories, args.out)
    print(written.text.rstrip())
    print(f"\nreport in {written.directory}: {', '.join(sorted(f.name for f in written.files))}")
    return DONE
