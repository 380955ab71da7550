"""Partitions that never divide a unit (patient, lesion): its samples go to one client, for training or for tests."""

from __future__ import annotations

import numpy as np

from fedhpc.data.partition import HOLDOUT, TRAIN, VALIDATION, train_test
from fedhpc.data.table import SampleTable
from fedhpc.data.units import assign_units, at_home, divided, of_units
from fedhpc.seeding import generator


def train_test_units(
    table: SampleTable, test_fraction: float, seed: int, units: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray], list[str]]:
    """Sorted indices of the train and of the test samples, no unit in both or in two environments, and notes.

    A unit of several environments or stored parts belongs to the one with most of its samples (ties: the first), but
    to the hold-out if any of its samples is in that; its other samples are in neither. Where no split is stored,
    `train_test` divides the units, each as one sample.

    Args:
        table: the samples.
        test_fraction: share of the units, see above.
        seed: of the run.
        units: int64 [num_samples].
    """
    stored = np.where(table.split == VALIDATION, TRAIN, table.split)
    held = np.isin(units, units[stored == HOLDOUT])
    rows, notes = np.flatnonzero(~held | (stored == HOLDOUT)), []
    if len(rows) < table.num_samples:
        number = len(np.unique(units[held & (stored != HOLDOUT)]))
        notes.append(f"{number} units are in the hold-out, {table.num_samples - len(rows)} more samples are left out")
    for what, places in (("environments", table.environment), ("parts of the stored split", stored)):
        number, home = divided(units[rows], places[rows]), at_home(units[rows], places[rows])
        if number:
            notes.append(
                f"{number} units have samples in several {what}; each is kept where most of its samples are, and "
                f"{int((~home).sum())} samples are left out"
            )
        rows = rows[home]
    _, first, unit = np.unique(units[rows], return_index=True, return_inverse=True)
    one, labels = rows[first], of_units(rows, table.labels, units)
    each = SampleTable(labels[one], table.environment[one], stored[one], {}, table.class_names, table.environment_names)
    train, test = (rows[np.isin(unit, chosen)] for chosen in train_test(each, test_fraction, seed))
    return (train, test), notes


def deal_units(
    indices: np.ndarray, table: SampleTable, parts: int, seed: int, units: np.ndarray, *names: str | int
) -> list[np.ndarray]:
    """Deal whole units to parts of near-equal sizes and class counts, by the stream `partition/<names>`."""
    by = of_units(indices, table.labels, units)
    wanted = np.tile(np.bincount(by[indices], minlength=table.num_classes) / parts, (parts, 1))
    return assign_units(indices, by, units, wanted, generator(seed, "partition", *names))[0]
