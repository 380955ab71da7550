"""`selected.sh` of a report on a sweep or on federations: the commands that train the chosen models again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from fedhpc.report.collect import CONFIG
from fedhpc.report.sweep_tables import cells
from fedhpc.report.sweeps import SweepResults

_HEAD = ("#!/bin/sh", "# Trains the chosen models of each criterion again, in a folder of their own: sh FILE OUT")
_WHERE = "# Start it where folders of datasets that the configuration names without a leading / are found."
_NEEDS_OUT = ': "${1:?name the folder to train in: sh FILE OUT}"'
"""Ends the script where the folder was forgotten: `"$1"/run` would be a place at the root of the file system."""


def selected_jobs(found: SweepResults) -> str:
    """A shell script that does it, from any place: one command per criterion, or, of federations, per chosen run."""
    if found.sweep.command:
        lines = [_WHERE, _NEEDS_OUT, *_of_sweep(found)]
    elif any(run.command for run in found.sweep.planned):
        lines = [_WHERE, _NEEDS_OUT, *_of_federations(found)]
    else:
        lines = ["# The sweep has no plan; its runs are named in sweep.csv."]
    return "\n".join([*_HEAD, *lines]) + "\n"


def _of_sweep(found: SweepResults) -> Iterator[str]:
    """The models after the chosen steps are kept."""
    ids = {t.run: t.id for t in found.sweep.planned}
    config = Path(shlex.split(found.sweep.command)[2]).resolve()
    for name in found.criteria:
        choices = [c for _, _, cell, _ in cells(found, name) for c in cell.choices.values()]
        chosen = list(dict.fromkeys(f"{ids[c.run]}@{c.step}" for c in choices if c.run in ids))
        command = f'fedhpc sweep {shlex.quote(str(config))} --out "$1" --only {",".join(chosen)}'
        yield command if chosen else f"# {name}: nothing was chosen"


def _of_federations(found: SweepResults) -> Iterator[str]:
    """Each chosen run once, below the cells that it was chosen for and the rounds that were chosen there."""
    reasons: dict[str, list[str]] = {}
    for name in found.criteria:
        for table, row, cell, label in cells(found, name):
            for seed, choice in cell.choices.items():
                why = f"{row.algorithm} on {table.dataset}, test environment {label}, seed {seed}: round {choice.step}"
                reasons.setdefault(choice.run, []).append(f"# {name}: {why}")
    names: set[str] = set()
    for run, lines in reasons.items():
        place = Path(run).resolve()
        name = place.name if place.name not in names else f"{place.name}-{len(names)}"
        names.add(name)
        yield from lines
        yield f'fedhpc run {shlex.quote(str(place / CONFIG))} --out "$1"/{shlex.quote(name)}'
