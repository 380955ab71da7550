"""The original's log files of a run (`<algorithm>_test.csv`, `<algorithm>_holdout.csv`), with its conventions.

Percent and rounded; a class or group that is absent counts as 0; dictionaries are Python literals. Its training and
validation logs have no counterpart here.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedhpc.report.medical import HOLDOUT, MedicalRun, numbered

_ALGORITHMS = {"erm": "ERM", "swad": "SWAD", "er": "ER", "gb": "resampling", "cb": "CB", "crt": "CRT"}
"""Recipe -> what the original calls it, where it is not the same."""
_SCORES = ("loss", "acc", "per_category_acc", "per_category_acc_dict", "per_group_acc", "per_group_acc_dict", "auc",
           "per_category_auc_dict")  # fmt: skip


def fedmedicl_logs(run: MedicalRun) -> dict[str, bytes]:
    """Names and contents of the two files; a common model's hold-out scores are those of every client."""
    name = _ALGORITHMS.get(run.recipe, run.recipe)
    clients = sorted(run.local.get("accuracy", {}))
    header = ["iteration", "client_id", "train_task_id", "eval_task_id", *(f"test_{s}" for s in _SCORES)]
    files = {f"{name}_test.csv": _csv(header, _test_rows(run, clients))}
    header = ["iteration", "client_id", *(f"holdout_{s}" for s in _SCORES)]
    files[f"{name}_holdout.csv"] = _csv(header, _holdout_rows(run, clients))
    return files


def _test_rows(run: MedicalRun, clients: Sequence[int]) -> Iterator[list[Any]]:
    known = run.known_classes(local=True)
    for trained in range(run.num_tasks):
        for client in clients:
            for task in range(run.num_tasks):
                at = {what: float(by[client][trained, task]) for what, by in run.local.items() if client in by}
                if not math.isnan(at["accuracy"]):
                    yield [_iteration(run, trained), client, trained, task, *_cells(at, known.get(client))]


def _holdout_rows(run: MedicalRun, clients: Sequence[int]) -> Iterator[list[Any]]:
    """After every task of a new disease's study, else after the last."""
    known = run.known_classes(local=False)
    common = None in run.holdout.get(f"{HOLDOUT}accuracy", {})
    for trained in range(run.num_tasks) if run.novel is not None else range(run.num_tasks - 1, run.num_tasks):
        for client in clients:
            model = None if common else client
            at = {
                what.removeprefix(HOLDOUT): float(by[model][trained]) for what, by in run.holdout.items() if model in by
            }
            if not math.isnan(at.get("accuracy", math.nan)):
                yield [_iteration(run, trained), client, *_cells(at, known.get(client))]


def _iteration(run: MedicalRun, trained: int) -> int:
    """Local steps so far; rounds where the number of steps is not fixed."""
    recipe, steps = run.config.get("recipe") or {}, (run.config.get("local") or {}).get("steps") or 1
    twice = run.recipe == "crt" and recipe.get("compat")
    return int((trained + 1) * int(run.config.get("rounds") or 1) * steps * (2 if twice else 1))


def _cells(at: Mapping[str, float], known: Sequence[int] | None) -> list[Any]:
    """Of the classes that are known (None: of all)."""
    classes, groups = _percent(at, "class_accuracy_", known), _percent(at, "group_accuracy_")
    areas = {n: at[name] for n, name in sorted(numbered(at, "class_auc_").items()) if known is None or n in known}
    if len(areas) == 2:
        first = min(areas)
        areas[first] = 1 - areas[first]  # the original scores class 0 of two upside down
    return [
        round(at.get("loss", math.nan), 5),
        round(100 * at["accuracy"], 3),
        _mean(classes),
        str(classes),
        _mean(groups),
        str(groups),
        round(at.get("auc", math.nan), 3),
        str(areas),
    ]


def _percent(at: Mapping[str, float], prefix: str, known: Sequence[int] | None = None) -> dict[int, float]:
    found = [(n, name) for n, name in sorted(numbered(at, prefix).items()) if known is None or n in known]
    return {number: 0.0 if math.isnan(at[name]) else round(100 * at[name], 3) for number, name in found}


def _mean(values: Mapping[int, float]) -> float:
    return float(np.round(np.mean(list(values.values())), 3)) if values else math.nan  # halves to even, as there


def _csv(header: Sequence[str], rows: Iterator[list[Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue().encode()
