"""`fedhpc hem`: the holistic evaluation metrics of runs, a study, or a file of curves or indices."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from fedhpc.config import read_yaml
from fedhpc.errors import DONE, ConfigError
from fedhpc.report.files import write_files
from fedhpc.report.hem import Comparison, HemOptions, HemReport, Importances, IndexTable, judge
from fedhpc.report.hem_importances import parse_importances
from fedhpc.report.hem_inputs import read_input
from fedhpc.report.hem_runs import read_runs
from fedhpc.report.hem_tables import json_report, latex_table, text_table

HELP = """Judge federated algorithms for three use cases by accuracy, convergence, computation and fairness (HEM).

example:
  fedhpc hem studies/digits --out studies/digits/hem
  fedhpc hem runs/fedavg runs/feddyn runs/scaffold --target 0.9 --json

INPUT.json holds {"indices": {ALGORITHM: {"accuracy": ..., "convergence": ..., "computation": ..., "fairness": ...}}}
or curves: {"target": ..., "max_rounds": ..., "algorithms": {ALGORITHM: {"base": ..., "eval_rounds": [...],
"client_accuracy": [[...], ...], "t_train": [...], "t_eval": [...]}}}: base is the algorithm that this one personalises
(or null), eval_rounds the rounds after which clients were tested, client_accuracy a list of fractions for each of them,
t_train and t_eval (may be left out) the seconds of every single round from the first.

FILE of --importances (importances are levels or numbers; what it does not say stays as it is):
  levels: {high: 3, moderate: 2, low: 1}
  use_cases:
    wearable: {accuracy: high, convergence: low, computation: high, fairness: 0.5}
  bands: {Excellent: "> 0.8", Good: 0.7, Acceptable: 0.5, Low: 0}
"""

_COMPUTATIONS = ("zero_anchored", "minmax", "fixed_reference=SECONDS")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own options."""
    parser.add_argument("inputs", metavar="INPUT", type=Path, nargs="+", help="run or study directories, or INPUT.json")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON: hem[use_case][algorithm] and all the rest")
    form.add_argument("--latex", action="store_true", help="print LaTeX tables")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="write hem.txt, hem.json, hem.tex, hem.html and plots there, too"
    )
    parser.add_argument("--target", type=float, help="target accuracy, a fraction (default: what the input says)")
    parser.add_argument("--rounds", type=int, help="most rounds, T (default: what the input says)")
    parser.add_argument(
        "--computation",
        default="zero_anchored",
        metavar="{" + ",".join(_COMPUTATIONS) + "}",
        help="index of the time to the target (default: zero_anchored, 1 - t/longest)",
    )
    parser.add_argument("--clock", choices=("train", "all"), default="train", help="all counts evaluations, too")
    parser.add_argument(
        "--fairness", choices=("reciprocal", "linear"), default="reciprocal", help="index of the paper's entropy"
    )
    parser.add_argument(
        "--smartphone-fairness",
        type=int,
        choices=(2, 1),
        help="importance of fairness on the smartphone: 2 as in the paper's table (default), 1 as in its figures",
    )
    parser.add_argument("--importances", metavar="FILE", type=Path, help="YAML file of own use cases, levels and bands")
    parser.add_argument("--resamples", type=int, default=2000, help="bootstrap samples of the seeds (default: 2000)")


def run(args: argparse.Namespace, overrides: list[str]) -> int:
    """Run the command; returns the exit code."""
    if args.resamples < 0:
        raise ConfigError(f"--resamples must be at least 0, got {args.resamples}")
    kind, reference = _computation(args.computation)
    options = HemOptions(
        computation=kind,
        reference_seconds=reference,
        clock=args.clock,
        fairness=args.fairness,
        importances=_importances(args.importances, args.smartphone_fairness),
        resamples=args.resamples,
    )
    report = judge(_read(args), options)
    if args.json or args.latex:
        print(json_report(report) if args.json else latex_table(report), end="")
        for warning in report.warnings:
            print(f"fedhpc: warning: {warning}", file=sys.stderr)
    else:
        print(text_table(report), end="")
    if args.out:
        _write(report, args.out)
        print(f"fedhpc: tables and plots are in {args.out}", file=sys.stderr)
    return DONE


def _read(args: argparse.Namespace) -> Comparison | IndexTable:
    files = [path for path in args.inputs if path.is_file() or path.suffix == ".json"]
    if not files:
        return read_runs(args.inputs, args.target, args.rounds)
    if len(args.inputs) > 1:
        raise ConfigError(f"{files[0]}: a file is judged alone; give run directories or one file")
    return read_input(files[0], args.target, args.rounds)


def _computation(text: str) -> tuple[Any, float | None]:
    kind, _, seconds = text.partition("=")
    if text in _COMPUTATIONS[:2]:
        return kind, None
    if kind != "fixed_reference":
        raise ConfigError(f"--computation must be one of {', '.join(_COMPUTATIONS)}, got '{text}'")
    try:
        reference = float(seconds)
    except ValueError:
        raise ConfigError(
            f"--computation fixed_reference needs seconds, such as fixed_reference=600: '{text}'"
        ) from None
    if not 0 < reference < float("inf"):
        raise ConfigError(f"--computation fixed_reference must be above 0 seconds, got '{text}'")
    return kind, reference


def _importances(path: Path | None, smartphone_fairness: int | None) -> Importances:
    """Use cases and bands of a file, or the paper's, with the smartphone's fairness as asked for."""
    found = Importances()
    if path is not None:
        found = parse_importances(read_yaml(str(path)), str(path))
    if smartphone_fairness is None:
        return found
    try:
        return found.with_weight("smartphone", "fairness", smartphone_fairness)
    except ConfigError as error:
        raise ConfigError(f"--smartphone-fairness: {error}") from None


def _write(report: HemReport, out: Path) -> None:
    """Write tables and plots; files of an earlier call are replaced, nothing else is touched."""
    from fedhpc.report.hem_plots import hem_plots  # matplotlib: half a second

    contents = {
        "hem.txt": text_table(report).encode(),
        "hem.json": json_report(report).encode(),
        "hem.tex": latex_table(report).encode(),
        **hem_plots(report),
    }
    write_files(out, contents, "HEM index", "hem.html")
