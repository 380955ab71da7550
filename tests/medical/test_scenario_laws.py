"""Laws of the mode `fixed` over random tables and settings: they hold, or the scenario is refused with a reason."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from fedhpc import registry
from fedhpc.data.table import SampleTable
from fedhpc.data.timeline import PARTS, Timeline
from fedhpc.errors import ConfigError
from fedhpc.medical.config import SCENARIOS
from tests.medical.scenario_tables import KINDS

CASES = 84


def random_table(rng: np.random.Generator) -> SampleTable:
    """Patients with a few images; ages, sexes, patients, splits and sites may be missing or contradict each other."""
    patients, classes, sites = (int(rng.integers(low, high)) for low, high in ((20, 400), (1, 6), (1, 4)))
    unit = np.repeat(np.arange(patients), rng.integers(1, int(rng.integers(2, 7)), patients))
    num = len(unit)

    def some(share: float, values: np.ndarray, others: Any) -> np.ndarray:
        return np.where(rng.random(num) < share * (rng.random() < 0.4), others, values)

    split = rng.choice([0, 1, 2, 3, 255], patients, p=[0.6, 0.1, 0.2, 0.05, 0.05])[unit]
    split = split if rng.random() < 0.6 else np.full(num, 255)
    attributes = {
        "age": some(0.1, rng.uniform(0, 95, patients)[unit], np.nan).astype(np.float32),
        "sex": some(0.1, rng.integers(0, 2, patients)[unit], -1).astype(np.int32),
        "unit": some(0.1, unit, -1).astype(np.int32),
    }
    return SampleTable(
        rng.integers(0, classes, patients)[unit],
        some(0.2, rng.integers(0, sites, patients)[unit], rng.integers(0, sites, num)),
        some(0.2, split, rng.integers(0, 4, num)).astype(np.uint8),
        attributes, tuple(map(str, range(classes))), tuple(map(str, range(sites))),
    )  # fmt: skip


def random_options(kind: str, rng: np.random.Generator) -> dict[str, Any]:
    def one(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    options = {
        "clients": one(1, 2, 3, 4, 5, 8), "tasks": one(1, 2, 4), "by_environment": one(True, False, False),
        "mixed": one(True, False), "missing": one("drop", "group"), "edges": one((), (40, 60), (20, 40, 60, 80)),
        "groups": one(("age",), ("sex",), ("age", "sex")), "holdout": one("disjoint", "disjoint", "test"),
        "holdout_fraction": one(0.0, 0.2, 0.5), "min_task_size": one(0, 0, 1), "leftovers": one("deal", "unused"),
        "local_tests": one("split", "split", "shared"), "balanced": one(0.0, 0.2), "spare": one(0.0, 0.2, 0.5),
    }  # fmt: skip
    if kind == "novel_disease":
        options |= {"rapid": int(rng.integers(options["clients"] + 1)), "others_per_new": one(0.0, 1.0, 2.0)}
    if kind == "group_ratios":
        options |= {"groups": ("sex",), "missing": "drop", "tasks": 2, "shares": ((0.9, 0.1), (0.2, 0.8))}
    return options


def held(timeline: Timeline, part: str) -> np.ndarray:
    return np.concatenate([rows for client in getattr(timeline, part) for rows in client])


def check(table: SampleTable, units: np.ndarray, timeline: Timeline, options: dict[str, Any], copies: bool) -> None:
    shared, apart = options["local_tests"] == "shared", options["holdout"] == "disjoint"
    twice = timeline.duplicates()
    assert copies or not twice["train"]
    assert copies or shared or not (twice["validation"] or twice["test"])
    assert not twice["train in another part"]
    assert not (apart and twice["test in hold-out"])
    assert timeline.shared_units(units, ("train",) if shared else PARTS) == 0
    trained, tested = units[held(timeline, "train")], units[held(timeline, "test")]
    for others in (units[timeline.holdout], tested, units[held(timeline, "validation")]):
        assert not np.isin(others, trained).any()
    assert not (apart and np.isin(units[timeline.holdout], tested).any())
    used = np.unique(np.concatenate([timeline.holdout, *(held(timeline, part) for part in PARTS)]))
    assert len(used) + sum(timeline.unused.values()) == table.num_samples
    if options["by_environment"]:
        for client in range(timeline.num_clients):
            own = np.concatenate([np.concatenate(getattr(timeline, part)[client]) for part in PARTS])
            assert len(np.unique(table.environment[own])) == 1


def test_laws_hold_or_the_scenario_is_refused() -> None:
    made = dict.fromkeys(KINDS, 0)
    for case in range(CASES):
        rng = np.random.default_rng(case)
        table, kind = random_table(rng), KINDS[case % len(KINDS)]
        options = random_options(kind, rng)
        scenario = registry.load(SCENARIOS, kind).SCENARIO(**options)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                timeline = scenario.timeline(table, case)
            except ConfigError:
                continue
        made[kind] += 1
        try:
            check(table, scenario.units(table), timeline, options, scenario.copies)
        except AssertionError as error:
            pytest.fail(f"case {case}: {kind} {options}: {error}")
    assert min(made.values()) >= 2, f"of {CASES} cases too few were possible: {made}"
