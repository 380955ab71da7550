"""A sweep's results as JSON: accuracies are fractions in the choices, percent in the means, as the original's tables.

Null is what is not known; that of a single trial has no standard error (with DomainBed's rules it is 0, as there).
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import fedhpc
from fedhpc.report.figures import Figure
from fedhpc.report.published import published_error, published_mean
from fedhpc.report.results import Cell, Table
from fedhpc.report.sweep_notes import missing_trials, remarks, rerun_command
from fedhpc.report.sweeps import SweepResults

FORMAT = 1


def json_tree(found: SweepResults) -> dict[str, Any]:
    """Everything, with key `tables`: per cell the choices and the missing trials."""
    sweep = found.sweep
    return {
        "format": FORMAT,
        "fedhpc": fedhpc.__version__,
        "source": sweep.source,
        "about": dict(sweep.about or {}),
        "rules": "domainbed" if found.compat else "fedhpc",
        "trials": {"planned": len(sweep.planned), "finished": sum(t.finished for t in sweep.trials)},
        "num_records": sweep.num_records,
        "criteria": {name: criterion.title for name, criterion in found.criteria.items()},
        "tables": [_table_tree(t, found.compat) for tables in found.tables.values() for t in tables],
        "averages": [_averages_tree(found, name) for name in found.criteria],
        "missing": [dataclasses.asdict(t) for t in missing_trials(found)],
        "failed": dict(sweep.failed or {}),
        "diverged": [t.run for t in sweep.trials if t.diverged],
        "command": sweep.command,
        "rerun": rerun_command(found, missing_trials(found)),
        "problems": list(sweep.problems),
        "remarks": list(remarks(found)),
    }


def json_report(found: SweepResults) -> str:
    """`json_tree` as text; what is not a number is null."""
    return json.dumps(_without_nan(json_tree(found)), indent=1, allow_nan=False) + "\n"


def _table_tree(table: Table, compat: bool) -> dict[str, Any]:
    of = table.criterion, table.dataset
    rows = [
        {
            "algorithm": r.algorithm,
            "cells": [_cell_tree(c, compat) for c in r.cells],
            "mean": r.mean,
            "mean_standard_error": r.figure.error(),
            "published_mean": published_mean(*of, r.algorithm, len(table.environments)),
            "published_standard_error": published_error(*of, r.algorithm, len(table.environments)),
        }
        for r in table.rows
    ]
    return {
        "dataset": table.dataset,
        "criterion": table.criterion,
        "environments": list(table.environments),
        "held_out_together": list(table.held_out) or None,
        "rows": rows,
    }


def _cell_tree(cell: Cell, compat: bool) -> dict[str, Any]:
    choices = [{"trial_seed": seed, **dataclasses.asdict(choice)} for seed, choice in cell.choices.items()]
    return {
        "test_env": cell.test_env,
        **_figure_tree(cell.figure, compat),
        "defaults": _figure_tree(cell.defaults, compat),
        "choices": choices,
        "missing": [t.id for t in cell.missing],
    }


def _figure_tree(figure: Figure, compat: bool) -> dict[str, Any]:
    return {**dataclasses.asdict(figure), "standard_error": figure.error(compat)}


def _averages_tree(found: SweepResults, name: str) -> dict[str, Any]:
    means = found.averages[name]
    rows = [
        {"algorithm": a, "cells": [_figure_tree(f, found.compat) for f in figures], "mean": means.mean(figures)}
        for a, figures in means.rows
    ]
    return {"criterion": name, "datasets": list(means.datasets), "rows": rows}


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_nan(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
