"""Federated partitions over patients: `by_environment` never divides one, the others say how many they divide."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from fedhpc.data.partition import HOLDOUT, TEST, TRAIN, Partition
from fedhpc.data.partitions.by_environment import ByEnvironment
from fedhpc.data.partitions.iid import Iid
from fedhpc.data.schema import UNASSIGNED
from fedhpc.data.table import SampleTable
from fedhpc.errors import ConfigError

PATIENTS, SITES = 240, 3


def make_table(stored: bool, several_sites: bool, several_parts: bool = False) -> SampleTable:
    """Patients with 1 to 4 images; a tenth of the images lie in another site, a tenth in another stored part."""
    rng = np.random.default_rng(11)
    unit = np.repeat(np.arange(PATIENTS), rng.integers(1, 5, PATIENTS))
    moved = rng.random((2, len(unit))) < 0.1
    site = np.where(moved[0] & several_sites, (unit + 1) % SITES, unit % SITES)
    part = np.where(unit % 5 == 0, TEST, np.where(unit % 17 == 1, HOLDOUT, TRAIN))
    part = np.where(moved[1] & several_parts, TRAIN + TEST - part.clip(max=TEST), part)
    split = part if stored else np.full(len(unit), UNASSIGNED)
    attributes = {"unit": unit.astype(np.int32), "age": np.zeros(len(unit), np.float32)}
    return SampleTable(unit % 4, site, split.astype(np.uint8), attributes, ("a", "b", "c", "d"), tuple("xyz"))


def places_of(table: SampleTable, partition: Partition) -> dict[int, set[tuple[str, int]]]:
    """Patient -> (part, client) pairs that hold some of its samples."""
    found: dict[int, set[tuple[str, int]]] = {}
    for part in ("train", "test"):
        for client, rows in enumerate(getattr(partition, part)):
            for unit in table.attributes["unit"][rows].tolist():
                found.setdefault(unit, set()).add((part, client))
    return found


@pytest.mark.parametrize("several_parts", [False, True])
@pytest.mark.parametrize("several_sites", [False, True])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(("pieces", "sites"), [(1, 1), (3, 1), (2, 2)])
def test_every_patient_in_one_client_for_one_end(
    pieces: int, sites: int, stored: bool, several_sites: bool, several_parts: bool
) -> None:
    table = make_table(stored, several_sites, several_parts)
    partition = ByEnvironment(pieces, sites).split(table, seed=5)
    assert partition.num_clients == pieces * SITES
    places = places_of(table, partition)
    assert {len(where) for where in places.values()} == {1}
    held = table.attributes["unit"][table.split == HOLDOUT] if stored else np.zeros(0)
    lost = set(range(PATIENTS)) - set(places) - set(held.tolist())
    assert not lost, "only whole patients of the hold-out have no client"
    assert not set(places) & set(held.tolist()), "nobody of the hold-out is trained on"
    told = [note.split(" units")[1].split(";")[0] for note in partition.notes if "hold-out" not in note]
    assert sum("in the hold-out" in note for note in partition.notes) == (stored and several_parts)
    assert told == [" have samples in several environments"] * several_sites + [
        " have samples in several parts of the stored split"
    ] * (stored and several_parts)
    if not stored:
        tested = sum(("test", c) in where for where in places.values() for c in range(partition.num_clients))
        assert abs(tested / len(places) - 0.2) < 0.03


def test_a_patient_of_two_sites_is_kept_where_most_of_its_samples_are() -> None:
    table = make_table(stored=True, several_sites=True)
    partition = ByEnvironment().split(table, seed=0)
    units, rows = table.attributes["unit"], np.concatenate([*partition.train, *partition.test])
    away = 0
    for unit in range(PATIENTS):
        counts = Counter(table.environment[units == unit].tolist())
        best = min(counts, key=lambda site: (-counts[site], site))
        away += counts.total() - counts[best]
        own = rows[units[rows] == unit]
        if len(own):
            assert set(table.environment[own].tolist()) == {best}
            assert len(own) == counts[best]
    assert f" and {away} samples are left out" in partition.notes[0]


def test_pieces_of_a_site_are_of_like_size_and_classes() -> None:
    table = make_table(stored=True, several_sites=False)
    rows = ByEnvironment(3).split(table, seed=0).counts(table)
    for site in range(SITES):
        own = rows[3 * site : 3 * site + 3]
        sizes = [row["num_train"] for row in own]
        assert max(sizes) - min(sizes) <= 4
        assert np.ptp([row["train_per_class"] for row in own], axis=0).max() <= 4


def test_samples_are_divided_where_that_is_asked_for() -> None:
    table = make_table(stored=True, several_sites=True)
    plain = replace(table, attributes={})
    for partition in (ByEnvironment(2, unit=""), ByEnvironment(2)):
        divided = partition.split(table if not partition.unit else plain, seed=0)
        assert divided.unused == (table.split == HOLDOUT).sum()
    for name, told in (("patient", "is no attribute"), ("age", "is a number")):
        with pytest.raises(ConfigError, match=rf"partition\.unit: '{name}' {told}"):
            ByEnvironment(unit=name).split(table, seed=0)


def test_partitions_of_samples_say_how_many_patients_they_divide() -> None:
    table = make_table(stored=False, several_sites=False)
    partition = Iid(clients=4).split(table, seed=0)
    places = places_of(table, partition)
    several = sum(len({client for _, client in where}) > 1 for where in places.values())
    both = sum(len({part for part, _ in where}) > 1 for where in places.values())
    (note,) = partition.notes
    assert note.startswith(f"{several} units (patients) have samples with more than one client, {both} both")
    assert not Iid(clients=4).split(replace(table, attributes={}), seed=0).notes
