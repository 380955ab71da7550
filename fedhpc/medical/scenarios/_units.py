"""Whole units (patients, lesions) to clients."""

from __future__ import annotations

import numpy as np

_NOTHING = 1e-9


def of_units(rows: np.ndarray, groups: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Give every sample the group of most of its unit's samples (ties: the lower number): int64 [num_samples]."""
    found = groups.copy()
    if len(rows):
        _, unit = np.unique(units[rows], return_inverse=True)
        table = np.zeros((unit.max() + 1, int(groups[rows].max()) + 1), dtype=np.int64)
        np.add.at(table, (unit, groups[rows]), 1)
        found[rows] = table.argmax(1)[unit]
    return found


def assign_units(
    rows: np.ndarray, groups: np.ndarray, units: np.ndarray, wanted: np.ndarray, rng: np.random.Generator
) -> tuple[list[np.ndarray], np.ndarray]:
    """Give whole units to clients, each to the client that lacks most of the unit's group, large units first.

    Of clients that lack about as much (within half a unit) it goes to the one that lacks most in all; else the clients
    with the lowest numbers would get the first unit of every group, which is all there is of small ones.

    Args:
        rows: indices of the samples to give away.
        groups: int64 [num_samples], the same for all samples of a unit (see `of_units`).
        units: int64 [num_samples].
        wanted: [K, G] target number of samples.
        rng: decides among units of one size, and the order of each client's samples.

    Returns:
        Indices per client, and those of the units that no client asks for.
    """
    _, first, unit, sizes = np.unique(units[rows], return_index=True, return_inverse=True, return_counts=True)
    unit_group = groups[rows][first]
    owner = np.full(len(sizes), -1)
    lacks = wanted.copy()
    order = rng.permutation(len(sizes))
    for u in order[np.argsort(-sizes[order], kind="stable")]:
        column = lacks[:, unit_group[u]]
        most = column.max()
        if most > _NOTHING:
            able = np.flatnonzero((column > _NOTHING) & (column >= most - sizes[u] / 2))
            client = able[lacks[able].sum(1).argmax()]
            owner[u] = client
            column[client] -= sizes[u]
    owners = owner[unit]
    given = [rng.permutation(rows[owners == client]) for client in range(len(wanted))]
    return given, rows[owners < 0]
