"""Client and task counts of FedMedICL in mode compat, and what mode fixed does with the same tables.

Cases come from the folder that `--vectors` names (default: the copies beside this file).
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhpc import registry
from fedhpc.data.table import SampleTable
from fedhpc.medical.scenarios._compat import TaskSplitter, compat_timeline, split_clients
from tests.golden.fedmedicl_cases import find, folder_of

SCENARIOS = {
    "group_probability": "localized",
    "Naive": "naive",
    "repeated_copies": "repeated",
    "group_incremental": "group_incremental",
    "class_incremental": "class_incremental",
    "group_ratios": "group_ratios",
}


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest) -> Path:
    return folder_of(request.config)


def split_cases(folder: Path) -> Iterator[tuple[str, dict[str, Any], SampleTable, Any]]:
    """Name, case, table and scenario of every split case that has its table."""
    content = find(folder, "splits")
    for name, case in content["cases"].items():
        params = case["params"]
        novel = bool(params.get("names"))
        path = content["__file__"].with_name("syn_novel.csv" if novel else "syn_processed.csv")
        if path.exists():
            table = read_table(path)
            yield name, case, table, scenario_of(case, params)


@functools.cache
def read_table(path: Path) -> SampleTable:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    ages = np.array([(5, 25, 45, 65, 85)[int(r["Age_multi"])] for r in rows], dtype=np.float32)
    ids = [r.get("patient_id") or r["PATIENT"] for r in rows]
    unit = np.unique(ids, return_inverse=True)[1].astype(np.int32)
    sex = np.array(["MF".index(r["Sex"]) for r in rows], dtype=np.int32)
    split = np.array([{"train": 0, "val": 1, "test": 2}[r["split"]] for r in rows], dtype=np.uint8)
    labels = np.array([int(r["Target"]) for r in rows])
    return SampleTable(
        labels, np.zeros(len(rows), int), split, {"age": ages, "sex": sex, "unit": unit}, ("a", "b", "c"), ("x",)
    )


def scenario_of(case: dict[str, Any], params: dict[str, Any]) -> Any:
    order = case["attribute_group_order"]
    groups = ("age", "sex") if len(order[0]) == 2 else ("sex",) if isinstance(order[0][0], str) else ("age",)
    options: dict[str, Any] = {
        "clients": params["K"],
        "tasks": params["T"],
        "mode": "compat",
        "mixed": params["imb"],
        "groups": groups,
        "holdout": "test",
        "min_task_size": 0,
    }
    if params.get("imb_type") == "target":
        options["group_by"] = "label"
    for kinds, num_spare in case["scenario_lists"]:
        options["kinds"] = (*kinds, *["spare"] * num_spare)
    if params.get("novel"):
        early = ["2" in client["train_tasks"][1]["class"] for client in case["clients"]]
        options["speeds"] = tuple("rapid" if there else "slow" for there in early)
    name = "novel_disease" if params.get("novel") else SCENARIOS[params["split"]]
    return registry.load("fedhpc.medical.scenarios", name).SCENARIO(**options)


def counted(values: np.ndarray) -> dict[str, int]:
    return {str(int(v)): int(n) for v, n in zip(*np.unique(values, return_counts=True), strict=True)}


def test_clients_are_as_large_as_the_originals(folder: Path) -> None:
    for name, case, table, scenario in split_cases(folder):
        if case["params"].get("names"):  # its training table is drawn from the one that is stored
            continue
        train = np.flatnonzero(table.split == 0)
        groups = scenario.find_groups(table, train)
        kinds = scenario.client_kinds(13, groups.num, scenario.clients)
        clients = split_clients(scenario, groups, train, kinds, seed=13)
        assert [len(rows) for rows in clients] == [c["train"]["n"] for c in case["clients"]], name
        assert sum(map(len, clients)) == case["train_total_assigned"]


def test_groups_are_in_the_originals_order(folder: Path) -> None:
    for name, case, table, scenario in split_cases(folder):
        if case["params"].get("names") or scenario.group_by == "label":
            continue
        values = scenario.find_groups(table, np.flatnonzero(table.split == 0)).values
        expected = [
            tuple("MF".index(v) if isinstance(v, str) else v for v in row) for row in case["attribute_group_order"]
        ]
        assert list(values) == expected, name


def test_tasks_have_the_originals_counts(folder: Path) -> None:
    """From the original's own clients, all task counts that do not depend on which rows are drawn."""
    content = find(folder, "splits")
    path = content["__file__"].with_name("splits_assign.npz")
    if not path.exists():
        pytest.skip("no row numbers of the original's clients")
    rows_of = np.load(path, allow_pickle=False)
    checked = 0
    for name, case, table, scenario in split_cases(folder):
        drawn = iter(case["abs_normals_normalised"])
        pools = {
            part: np.flatnonzero(table.split == code) for part, code in (("train", 0), ("validation", 1), ("test", 2))
        }
        groups = scenario.find_groups(table, pools["train"])
        tasks = max(len(c["train_tasks"]) for c in case["clients"])
        splitter = TaskSplitter(
            scenario, table, groups, 13, tasks, lambda client, num, drawn=drawn: np.array(next(drawn))
        )
        for client in case["clients"]:
            rows = rows_of[f"{name}/c{client['client']}_train"].astype(np.int64)
            parts = splitter.client(client["client"], rows, pools)
            for part, key in zip(parts, ("train_tasks", "val_tasks", "test_tasks"), strict=True):
                if key != "train_tasks" and case["params"].get("names"):
                    continue  # drawn from a smaller validation and test table that is not stored
                compare(scenario, table, part, client[key], f"{name} client {client['client']} {key}")
                checked += 1
    assert checked > 100


def compare(scenario: Any, table: SampleTable, found: tuple[np.ndarray, ...], expected: list[Any], where: str) -> None:
    kind = type(scenario).__name__
    assert [len(rows) for rows in found] == [task["n"] for task in expected], where
    ages = (table.attributes["age"] >= 59).astype(int)
    by_age = scenario.groups == ("age",) and scenario.group_by == "attributes"
    for rows, task in zip(found, expected, strict=True):
        if kind == "Localized" and by_age and scenario.mixed and "missing" not in "".join(scenario.kinds):
            assert counted(ages[rows]) == task["group"], where
        if kind in ("ClassIncremental", "NovelDisease") and "train" in where:
            assert counted(table.labels[rows]) == task["class"], where
        if kind in ("GroupIncremental", "ClassIncremental", "Repeated"):
            assert counted(ages[rows]) == task["group"], where


def test_fixed_mode_uses_nothing_twice_and_divides_no_patient(folder: Path) -> None:
    from dataclasses import replace

    seen = 0
    for name, _, table, scenario in split_cases(folder):
        if type(scenario).__name__ == "Repeated":
            continue
        fixed = replace(scenario, mode="fixed", holdout="disjoint")
        timeline = fixed.timeline(table, seed=13)
        assert set(timeline.duplicates().values()) == {0}, name
        assert timeline.shared_units(table.attributes["unit"]) == 0, name
        used = sum(len(rows) for part in ("train", "validation", "test") for c in getattr(timeline, part) for rows in c)
        assert used + len(timeline.holdout) + sum(timeline.unused.values()) == table.num_samples, name
        seen += 1
    assert seen


def test_compat_mode_reports_what_it_leaves(folder: Path) -> None:
    for name, case, table, scenario in split_cases(folder):
        if name.startswith("gp_K10") and scenario.mixed:
            timeline = compat_timeline(scenario, table, 13)
            assert timeline.unused["train: never drawn"] == pytest.approx(case["train_unused"], abs=40), name
