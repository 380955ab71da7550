"""Patients with samples in several sites, or in several parts of a stored split, still belong to one client."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedhpc.commands._medical import divide
from fedhpc.data.partition import HOLDOUT, TRAIN, VALIDATION
from fedhpc.data.schema import UNASSIGNED
from fedhpc.data.stores import open_store
from fedhpc.data.table import SampleTable
from fedhpc.data.timeline import PARTS, Timeline
from fedhpc.errors import ConfigError
from fedhpc.medical.config import load_medical
from fedhpc.medical.describe import scenario_tree, text_table
from tests.medical.scenario_tables import KINDS, TABLE, make, make_table, used

UNITS = TABLE.attributes["unit"]
CONFIG = Path(__file__).resolve().parents[2] / "configs" / "smoke" / "medical" / "er.yaml"


def scattered(several_sites: bool, several_parts: bool) -> SampleTable:
    """Two sites by patient; a sixth of the samples lie in another site, another sixth in another stored part."""
    rng = np.random.default_rng(3)
    site, moved, split = UNITS % 2, rng.random((2, TABLE.num_samples)) < 1 / 6, TABLE.split.copy()
    site = np.where(moved[0] & several_sites, 1 - site, site)
    split = np.where(moved[1] & several_parts, rng.integers(0, 4, len(split)), split).astype(np.uint8)
    return replace(TABLE, environment=site, split=split)


def away(places: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Those of the rows that are not where most of their patient's rows are (ties: the lowest place), counted anew."""
    found = []
    for unit in np.unique(UNITS[rows]):
        own = rows[UNITS[rows] == unit]
        counts = Counter(places[own].tolist())
        home = min(counts, key=lambda place: (-counts[place], place))
        found += own[places[own] != home].tolist()
    return np.array(sorted(found), dtype=np.int64)


def owners(timeline: Timeline) -> dict[int, set[str]]:
    """Patient -> the clients that hold it in any part, and what the hold-out is."""
    found: dict[int, set[str]] = {}
    for part in PARTS:
        for client, tasks in enumerate(getattr(timeline, part)):
            for unit in UNITS[np.concatenate(tasks)].tolist():
                found.setdefault(unit, set()).add(f"client {client}")
    for unit in UNITS[timeline.holdout].tolist():
        found.setdefault(unit, set()).add("hold-out")
    return found


@pytest.mark.parametrize("several_parts", [False, True])
@pytest.mark.parametrize("several_sites", [False, True])
@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("repeated", "group_ratios")])
def test_no_patient_in_two_clients_and_every_sample_accounted_for(
    kind: str, several_sites: bool, several_parts: bool
) -> None:
    table = scattered(several_sites, several_parts)
    timeline = make(kind, table, clients=4, by_environment=True, min_task_size=0)
    assert {len(who) for who in owners(timeline).values()} == {1}
    assert used(timeline) == table.num_samples
    assert set(timeline.duplicates().values()) == {0}
    sites = away(table.environment, np.arange(table.num_samples))
    parts = away(table.split, np.setdiff1d(np.arange(table.num_samples), sites))
    told = {
        "units in several environments: in another environment than most of their unit": len(sites),
        "units in several parts of the stored split: in another part than most of their unit": len(parts),
    }
    assert {reason: n for reason, n in timeline.unused.items() if "units" in reason} == {
        k: n for k, n in told.items() if n
    }
    assert len(timeline.notes) == several_sites + several_parts


def test_sites_do_not_matter_where_clients_are_not_sites() -> None:
    timeline = make("naive", scattered(True, False), clients=4)
    assert not timeline.unused
    assert {len(who) for who in owners(timeline).values()} == {1}


def test_divided_patients_can_be_refused_with_the_numbers_or_ignored() -> None:
    for table, what in ((scattered(True, False), "environments"), (scattered(False, True), "parts of the stored")):
        with pytest.raises(ConfigError, match=rf"\d+ of 600 units have samples in several {what}.*`home`"):
            make("naive", table, clients=4, by_environment=True, divided_units="refuse")
        assert not make("naive", table, clients=4, by_environment=True, unit="", divided_units="refuse").unused


def test_what_is_stored_stays_where_no_tests_are_stored() -> None:
    """A hold-out must never be trained on, though the split lacks tests."""
    for code in (VALIDATION, HOLDOUT):
        table = replace(TABLE, split=np.where(UNITS % 5 == 0, code, TRAIN).astype(np.uint8))
        timeline = make("naive", table, clients=3)
        stored = timeline.holdout if code == HOLDOUT else np.concatenate([r for c in timeline.validation for r in c])
        assert set(np.flatnonzero(table.split == code)) == set(stored.tolist())
        assert used(timeline) == table.num_samples
        assert all(len(rows) for client in timeline.test for rows in client)


def test_samples_without_a_stored_part_are_counted_where_others_have_one() -> None:
    table = replace(TABLE, split=np.where(UNITS % 10 == 0, UNASSIGNED, TABLE.split).astype(np.uint8))
    timeline = make("naive", table, clients=3)
    assert timeline.unused == {"the stored split: in no part": (UNITS % 10 == 0).sum()}
    assert used(timeline) == table.num_samples


def test_the_tables_tell_how_many_patients_clients_share() -> None:
    table = make_table(patients=2000)
    units = table.attributes["unit"].astype(np.int64)
    for mode, shared in (("fixed", False), ("compat", True)):
        tree = scenario_tree(make("naive", table, clients=3, mode=mode), table, units)
        assert all(bool(count) == shared for count in tree["shared_units"].values())
        assert ("units in several clients: none" in text_table(tree)) == (not shared)
    assert tree["shared_units"]["train"] == _shared(table, make("naive", table, clients=3, mode="compat"))


def _shared(table: SampleTable, timeline: Timeline) -> int:
    held = [set(table.attributes["unit"][np.concatenate(tasks)].tolist()) for tasks in timeline.train]
    return sum(n > 1 for n in Counter(unit for client in held for unit in client).values())


@pytest.mark.parametrize("mode", ["fixed", "compat"])
def test_units_that_the_dataset_lacks_are_refused_before_there_is_a_run(mode: str) -> None:
    config = load_medical(str(CONFIG), ["--scenario.mode", mode, "--scenario.unit", "patient"])
    with pytest.raises(ConfigError, match=r"scenario\.unit: 'patient' is no attribute of the dataset"):
        divide(config, open_store(config.data.dataset, None))
