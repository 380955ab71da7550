"""`fedhpc scenario`: which client would hold which samples in which task, before anything is trained."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fedhpc.commands._configs import is_medical, load_run
from fedhpc.errors import DONE, ConfigError, FedhpcError

if TYPE_CHECKING:
    from fedhpc.medical.config import MedicalConfig

TAKES_OVERRIDES = True
HELP = """Show how a medical scenario divides a dataset: clients x tasks x groups x classes.

example:
  fedhpc scenario configs/smoke/medical/cb.yaml --scenario.clients 10 --out runs/scenario

Of a study its first run is shown. Any key of the configuration can be given as an option: --section.key value. With
--out the table is also written as text, JSON and CSV (a line per client, task, part, group and class), with plots.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own options."""
    parser.add_argument("config", metavar="CONFIG", help="YAML file of a medical run, or of a study")
    parser.add_argument("--out", metavar="DIR", type=Path, help="write scenario.txt, .json, .csv and plots there")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--contrast", action="store_true", help="with --out: contrast.json and its plot, by groups")


def run(args: argparse.Namespace, overrides: list[str]) -> int:
    """Run the command; returns the exit code."""
    from fedhpc.data.fingerprint import fingerprint
    from fedhpc.data.stores import open_store
    from fedhpc.medical.describe import cells_csv, scenario_tree, text_table

    config = _configuration(args.config, overrides)
    store = open_store(config.data.dataset, config.data.root)
    values = {name: about.get("values", ()) for name, about in store.manifest.attributes.items()}
    timeline = config.scenario.timeline(store.table, config.seed).named(values)
    tree = {"data": fingerprint(store), **scenario_tree(timeline, store.table, config.scenario.units(store.table))}
    text = text_table(tree)
    print(json.dumps(tree, indent=1) if args.json else text, end="\n" if args.json else "")
    if args.out is None:
        return DONE
    from fedhpc.report.medical_plots import contrast_plot, scenario_plots

    files = {"scenario.txt": text.encode(), "scenario.json": (json.dumps(tree, indent=1) + "\n").encode()}
    files["scenario.csv"] = cells_csv(tree).encode()
    files |= scenario_plots(tree)
    if args.contrast:
        from fedhpc.medical.contrast import contrast_by_group

        by_group = contrast_by_group(store.images, timeline.group, timeline.group_names)
        contrasts = {config.data.dataset: by_group}
        files["contrast.json"] = (json.dumps(contrasts, indent=1) + "\n").encode()
        files |= contrast_plot(contrasts)
    _write(args.out, files)
    if not args.json:
        print(f"\nwritten to {args.out}: {', '.join(sorted(files))}")
    return DONE


def _configuration(path: str, overrides: list[str]) -> MedicalConfig:
    """The configuration of a medical run; of a study, that of its first run."""
    from fedhpc.config import plan_study, read_yaml

    if "runs" not in read_yaml(path):
        config = load_run(path, overrides)
        if not is_medical(config):
            raise ConfigError(f"{path}: is no medical run (no section scenario)")
        return config
    planned = plan_study([path], overrides, load_run)
    first = planned[0]
    if not is_medical(first.config):
        raise ConfigError(f"{path}: its first run, {first.name}, is no medical run (no scenario)")
    print(f"fedhpc: note: {path} is a study of {len(planned)} runs, this is {first.name}", file=sys.stderr)
    return first.config


def _write(out: Path, files: dict[str, bytes]) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (out / name).write_bytes(content)
    except OSError as error:
        raise FedhpcError(f"{out}: cannot be written ({error.strerror}); choose another --out") from None
