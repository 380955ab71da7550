"""The exporter of the original's log files writes the original's rows from the numbers that they hold.

Cases come from the folder that `--vectors` names (default: the copies beside this file); kinds are told by content.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhpc.report.medical import HOLDOUT, MedicalRun
from fedhpc.report.medical_logs import fedmedicl_logs
from tests.golden.fedmedicl_cases import Case, cases_of, folder_of


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest) -> Path:
    return folder_of(request.config)


def numbers(text: str) -> dict[int, float]:
    """A Python literal with bare `nan`."""
    pairs = (part.split(":") for part in text.strip("{}").split(",") if part)
    return {int(key): float(value) for key, value in pairs}


def scores_of(row: dict[str, str], prefix: str) -> dict[str, float]:
    """A row as fractions, under this package's names."""
    found = {"accuracy": float(row[f"{prefix}acc"]) / 100}
    found |= {name: float(row[f"{prefix}{name}"]) for name in ("loss", "auc")}
    for column, ours, scale in (
        ("per_category_acc_dict", "class_accuracy_", 100),
        ("per_group_acc_dict", "group_accuracy_", 100),
        ("per_category_auc_dict", "class_auc_", 1),
    ):
        found |= {f"{ours}{number}": value / scale for number, value in numbers(row[f"{prefix}{column}"]).items()}
    areas = [name for name in found if name.startswith("class_auc_")]
    if len(areas) == 2:
        found["class_auc_0"] = 1 - found["class_auc_0"]
    return found


def run_with(rows: list[dict[str, str]], prefix: str, steps: int) -> MedicalRun:
    """A run that recorded these rows."""
    tasks = [int(row["eval_task_id"]) for row in rows if "eval_task_id" in row] or [0]
    config: dict[str, Any] = {"rounds": 1, "local": {"steps": steps}}
    run = MedicalRun("", "fedavg", "fedavg", "", 0, config=config, num_tasks=max(tasks) + 1)
    for row in rows:
        client = int(row["client_id"])
        for name, value in scores_of(row, prefix).items():
            empty = np.full((run.num_tasks,) * 2, math.nan)
            matrix = run.local.setdefault(name, {}).setdefault(client, empty)
            if prefix == "test_":
                matrix[int(row["train_task_id"]), int(row["eval_task_id"])] = value
            else:
                run.holdout.setdefault(f"{HOLDOUT}{name}", {})[client] = np.array([value])
    return run


def logs(folder: Path, prefix: str) -> list[Case]:
    found = [case for case in cases_of(folder, "files", "header", "rows") if f"{prefix}loss" in case["header"]]
    return found or pytest.skip(f"no logs of {prefix}")


@pytest.mark.parametrize("prefix", ["test_", "holdout_"])
def test_rows_of_the_originals_logs(folder: Path, prefix: str) -> None:
    for case in logs(folder, prefix):
        rows = list(csv.DictReader([case["header"], *case["rows"]]))
        first = int(rows[0]["iteration"])
        exported = fedmedicl_logs(run_with(rows, prefix, first))
        header, *lines = exported[f"fedavg_{prefix[:-1]}.csv"].decode().split("\n")
        assert header == case["header"]
        assert [line for line in lines if line] == case["rows"]
        assert len(case["rows"]) <= case["total_rows"]
