"""FedMedICL's split cases: their tables, scenarios, and the samples that the original gave to its clients."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhpc import registry
from fedhpc.data.table import SampleTable
from tests.golden.fedmedicl_cases import FILE, Case, cases_of, found_cases, tables

SCENARIOS = {
    "group_probability": "localized",
    "Naive": "naive",
    "repeated_copies": "repeated",
    "group_incremental": "group_incremental",
    "class_incremental": "class_incremental",
    "group_ratios": "group_ratios",
}
PARTS = {"train": 0, "val": 1, "test": 2}
EMPTY = SampleTable(np.zeros(0, int), np.zeros(0, int), np.zeros(0, np.uint8), {}, ("a", "b", "c"), ("x",))


@dataclass(frozen=True, eq=False)
class Split:
    """A case with what it needs.

    Attributes:
        case: as it was read.
        stored: the table as it lies there.
        table: the samples that the case divides; others have the split 9.
        scenario: of this package, in mode compat.
        rows: key -> the original's samples, without the case's name; empty where they are not stored.
    """

    case: Case
    stored: SampleTable
    table: SampleTable
    scenario: Any
    rows: dict[str, np.ndarray]

    @property
    def name(self) -> str:
        return str(self.case["name"])

    def pool(self, part: str) -> np.ndarray:
        """Samples of the part."""
        return np.flatnonzero(self.table.split == PARTS[part])

    def client_rows(self, client: Case) -> np.ndarray:
        """The client's training samples: the original's, or others with the same numbers of its groups or classes."""
        stored = self.rows.get(f"c{client['client']}_train")
        if stored is not None:
            return stored
        by_class = type(self.scenario).__name__ in ("ClassIncremental", "NovelDisease")
        wanted = client["train"]["class" if by_class else "group"]
        keys, pool = (classes if by_class else self.group_keys)(self.table), self.pool("train")
        return np.concatenate([pool[keys[pool] == key][:num] for key, num in wanted.items()])

    def group_keys(self, table: SampleTable) -> np.ndarray:
        """Group of every sample, named as in the case."""
        return group_keys(table, len(self.case["attribute_group_order"][0]), self.by_sex)

    @property
    def by_sex(self) -> bool:
        return "sex" in self.scenario.groups


def classes(table: SampleTable) -> np.ndarray:
    return table.labels.astype(str)


def group_keys(table: SampleTable, num_columns: int, by_sex: bool) -> np.ndarray:
    ages = (table.attributes["age"] >= 59).astype(int)
    sexes = np.array(list("MF"))[table.attributes["sex"]]
    if num_columns == 2:
        return np.array([f"({age}, '{sex}')" for age, sex in zip(ages, sexes, strict=True)])
    return sexes if by_sex else ages.astype(str)


def counted(keys: np.ndarray) -> dict[str, int]:
    return {str(key): int(num) for key, num in zip(*np.unique(keys, return_counts=True), strict=True)}


def split_cases(folder: Path, tables_needed: bool = True) -> list[Split]:
    """Every split case that has its table, else (where that is not needed) with an empty one; skip without any."""
    found = []
    for case in cases_of(folder, "cases", "scenario_lists", "clients"):
        reduced = bool(case["params"].get("names"))
        path = table_of(case, reduced)
        if path is not None:
            rows = stored_rows(case[FILE].parent, case["name"])
            stored = read_table(path)
            table = reduced_table(case, stored, rows) if reduced else stored
            found.append(Split(case, stored, table, scenario_of(case, case["params"]), rows))
        elif not tables_needed:
            found.append(Split(case, EMPTY, EMPTY, scenario_of(case, case["params"]), {}))
    return found or pytest.skip(f"split cases, but no table (CSV) with their numbers of samples in {folder}")


def table_of(case: Case, reduced: bool) -> Path | None:
    """The table beside the case with its numbers; of a reduced one only its kind is known."""
    for path, rows in tables(case[FILE].parent):
        columns = set(rows[0]) if rows else set()
        if {"Target", "Age_multi", "split"} <= columns and ("source" in columns) == reduced:
            labels = counted(np.array([row["Target"] for row in rows if row["split"] == "train"]))
            if reduced or labels == case["full_dataset"]["train_class"]:
                return path
    return None


def stored_rows(folder: Path, name: str) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for path in sorted(folder.glob("*.npz")):
        with np.load(path, allow_pickle=False) as content:
            keys = [key for key in content.files if key.startswith(f"{name}/")]
            found |= {key.removeprefix(f"{name}/"): content[key].astype(np.int64) for key in keys}
    return found


@functools.cache
def read_table(path: Path) -> SampleTable:
    rows = next(rows for found, rows in tables(path.parent) if found == path)
    ages = np.array([(5, 25, 45, 65, 85)[int(r["Age_multi"])] for r in rows], dtype=np.float32)
    unit = np.unique([r.get("patient_id") or r["PATIENT"] for r in rows], return_inverse=True)[1].astype(np.int32)
    sex = np.array(["MF".index(r["Sex"]) for r in rows], dtype=np.int32)
    split = np.array([PARTS[r["split"]] for r in rows], dtype=np.uint8)
    labels = np.array([int(r["Target"]) for r in rows])
    attributes = {"age": ages, "sex": sex, "unit": unit}
    return SampleTable(labels, np.zeros(len(rows), int), split, attributes, ("a", "b", "c"), ("x",))


def reduced_table(case: Case, table: SampleTable, rows: dict[str, np.ndarray]) -> SampleTable:
    """The samples that the original left in each part, with the numbers of classes (and groups) it tells.

    Validation samples of the new class are trained on, too (its defect B10); the others are drawn at random.
    """
    full, split = case["full_dataset"], np.full(table.num_samples, 9, dtype=np.uint8)
    taken = [found for key, found in rows.items() if key.endswith("_train")]
    if taken:
        split[np.concatenate(taken)] = PARTS["train"]
    groups = group_keys(table, 1, False)
    missing = {key: num - int((groups[split == 0] == key).sum()) for key, num in full["train_group"].items()}
    free = {
        label: np.flatnonzero((split == 9) & (classes(table) == label) & (table.split != PARTS["test"])).tolist()
        for label in full["train_class"]
    }
    short = {
        label: num - int(((split == 0) & (classes(table) == label)).sum()) for label, num in full["train_class"].items()
    }
    for label in sorted(free, key=lambda label: len(free[label]) - short[label]):  # those without a choice first
        for _ in range(short[label]):
            row = max(free[label], key=lambda row: missing[groups[row]])
            free[label].remove(row)
            split[row] = PARTS["train"]
            missing[groups[row]] -= 1
    copies = [np.arange(table.num_samples)]
    for part in ("val", "test"):
        pool = np.flatnonzero(table.split == PARTS[part])
        for label, num in full[f"{part}_class"].items():
            chosen = pool[classes(table)[pool] == label][:num]
            copies.append(chosen)
            split = np.concatenate([split, np.full(len(chosen), PARTS[part], dtype=np.uint8)])
    every = np.concatenate(copies)
    attributes = {name: values[every] for name, values in table.attributes.items()}
    return SampleTable(
        table.labels[every], table.environment[every], split, attributes, table.class_names, table.environment_names
    )


def public_splits(folder: Path) -> list[Split]:
    """Cases on public metadata, with made-up tables that have its numbers of samples in each age group."""
    found = []
    for case in found_cases(folder, "summary", "scenario_lists", "clients"):
        for sizes in found_cases(folder, case["clients"][0]["dataset"], *PARTS):
            groups = np.concatenate([np.repeat([0, 1], sizes[part]["Age_binary"]) for part in PARTS])
            split = np.repeat(list(PARTS.values()), [sum(sizes[part]["Age_binary"]) for part in PARTS]).astype(np.uint8)
            nothing = np.zeros(len(groups), dtype=np.int64)
            attributes = {"age": np.where(groups, 65, 25).astype(np.float32), "sex": nothing, "unit": nothing}
            table = SampleTable(nothing, nothing, split, attributes, ("a",), ("x",))
            params = {"K": len(case["clients"]), "T": len(case["clients"][0]["train_tasks"]), "imb": True, "seed": 13}
            params["split"] = "group_probability"  # as its note says
            whole = {"name": "public", "params": params, **case}
            found.append(Split(whole, table, table, scenario_of(whole, params), {}))
    return found


def scenario_of(case: Case, params: Case) -> Any:
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


def novel_class_total(table_rows: list[dict[str, str]], part: str, times: int) -> int:
    """Samples of a part that is cut to so many old ones for each of the new class (its loader's rule)."""
    parts = ("train", "val") if part == "train" else (part,)
    new = sum(row["split"] in parts and row["source"] == "covid" for row in table_rows)
    return math.floor(new * (1 + times))
