"""Whole units (patients, lesions): where each is at home, and which client gets it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhpc.data.table import SampleTable
from fedhpc.errors import ConfigError, nearest

UNIT = "unit"
"""Attribute of a dataset that says which samples belong together."""
_NOTHING = 1e-9


def units_of(table: SampleTable, attribute: str, key: str) -> np.ndarray | None:
    """Unit of every sample: int64 [num_samples], distinct where it is not known; None where the dataset has no units.

    Args:
        table: the samples.
        attribute: its name; `unit` may be missing in the dataset, and an empty one asks for no units.
        key: the setting, for messages.

    Raises:
        ConfigError: the dataset lacks the attribute, or it is a number.
    """
    if not attribute or (attribute == UNIT and UNIT not in table.attributes):
        return None
    known = sorted(n for n, values in table.attributes.items() if not np.issubdtype(values.dtype, np.floating))
    if attribute not in known:
        what = "is a number, no category" if attribute in table.attributes else "is no attribute of the dataset"
        told = f"{nearest(attribute, known)}; its categories are {', '.join(known) or 'none'}"
        raise ConfigError(f"{key}: '{attribute}' {what}{told}")
    codes = table.attributes[attribute].astype(np.int64)
    return np.where(codes < 0, codes.max(initial=-1) + 1 + np.arange(len(codes)), codes)


def at_home(units: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Whether each sample lies where most samples of its unit lie (ties: the lowest place): bool [num_samples].

    Args:
        units: int64 [num_samples].
        places: int64 [num_samples], not negative: environments, parts of a split.
    """
    numbers = np.unique(places, return_inverse=True)[1]
    return np.asarray(of_units(np.arange(len(units)), numbers, units) == numbers)


def divided(units: np.ndarray, places: np.ndarray) -> int:
    """How many units have samples in more than one place; arguments as in `at_home`."""
    pairs = np.unique(np.stack([units, places]), axis=1)
    return int((np.unique(pairs[0], return_counts=True)[1] > 1).sum())


def owned_by_several(owners: Sequence[Sequence[np.ndarray]], units: np.ndarray) -> int:
    """How many units have samples with more than one owner.

    Args:
        owners: of each owner (a client), groups of indices.
        units: int64 [num_samples]; negative is "its own unit".
    """
    each = [np.unique(units[np.concatenate([*rows, np.zeros(0, np.int64)])]) for rows in owners]
    values, times = np.unique(np.concatenate([*each, np.zeros(0, np.int64)]), return_counts=True)
    return int((times[values >= 0] > 1).sum())


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
