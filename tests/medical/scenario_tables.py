"""Made-up medical tables, and scenarios over them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedhpc import registry
from fedhpc.data.table import SampleTable
from fedhpc.data.timeline import PARTS, Timeline
from fedhpc.medical.config import SCENARIOS


def make_table(seed: int = 0, patients: int = 600, young: float = 0.6, split: bool = True) -> SampleTable:
    """Patients with 1 to 4 images, ages, sexes and a long tail of three classes."""
    rng = np.random.default_rng(seed)
    per_patient = rng.integers(1, 5, patients)
    unit = np.repeat(np.arange(patients), per_patient)
    age = np.where(rng.random(patients) < young, rng.integers(18, 60, patients), rng.integers(60, 95, patients))
    sex = rng.integers(0, 2, patients)
    part = rng.choice([0, 1, 2], patients, p=[0.7, 0.1, 0.2]) if split else np.full(patients, 255)
    labels = rng.choice(3, patients, p=[0.45, 0.25, 0.3])[unit]
    return SampleTable(
        labels,
        rng.integers(0, 2, len(unit)),
        part[unit].astype(np.uint8),
        {
            "age": age[unit].astype(np.float32),
            "sex": sex[unit].astype(np.int32),
            "unit": unit.astype(np.int32),
        },
        ("a", "b", "c"),
        ("x", "y"),
    )


def small_table(classes: int, patients_per_class: int, images: int = 3) -> SampleTable:
    """Patients of one class each, of as many images each: four in six train, one validates, one is for tests."""
    patients = classes * patients_per_class
    unit = np.repeat(np.arange(patients), images)
    part = np.array([0, 0, 1, 2, 0, 0])[np.arange(patients) % 6]
    ages = np.where(np.arange(patients) % 2, 30.0, 70.0)
    return SampleTable(
        unit // patients_per_class,
        np.zeros(len(unit), dtype=np.int64),
        part[unit].astype(np.uint8),
        {"age": ages[unit].astype(np.float32), "unit": unit.astype(np.int32)},
        tuple(map(str, range(classes))),
    )


TABLE = make_table()
KINDS = registry.names(SCENARIOS)


def make(kind: str = "localized", table: SampleTable = TABLE, seed: int = 1, **options: Any) -> Timeline:
    if "incremental" in kind:
        options = {"min_task_size": 0, **options}
    if kind == "novel_disease":
        options = {"rapid": options.get("clients", 5) // 2, **options}
    return registry.load(SCENARIOS, kind).SCENARIO(**options).timeline(table, seed)


def used(timeline: Timeline) -> int:
    inside = sum(len(rows) for part in PARTS for client in getattr(timeline, part) for rows in client)
    return inside + len(timeline.holdout) + sum(timeline.unused.values())


def sizes(timeline: Timeline) -> list[int]:
    return [sum(map(len, tasks)) for tasks in timeline.train]
