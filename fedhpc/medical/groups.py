"""Demographic groups: every combination of the values of some attributes, numbered by descending size."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedhpc.data.ages import bracket_names, brackets
from fedhpc.data.table import SampleTable
from fedhpc.errors import ConfigError, nearest


@dataclass(frozen=True, eq=False)
class Groups:
    """Demographic groups of a table.

    Attributes:
        ids: int64 [num_samples], group of each sample, -1 for none.
        values: the attribute values of each group.
        names: a name per group, such as `60+, F`.
    """

    ids: np.ndarray
    values: tuple[tuple[object, ...], ...]
    names: tuple[str, ...]

    @property
    def num(self) -> int:
        """Number of groups."""
        return len(self.values)

    def sizes(self, rows: np.ndarray) -> np.ndarray:
        """Samples of each group among some rows: int64 [G]."""
        return np.bincount(self.ids[rows] + 1, minlength=self.num + 1)[1:]


def codes_of(table: SampleTable, attribute: str, edges: Sequence[float], key: str) -> tuple[np.ndarray, int]:
    """Codes int64 [num_samples] of an attribute, numbers cut at the edges, and how many there can be.

    Raises:
        ConfigError: the dataset has no such attribute; `key` names the setting.
    """
    if attribute not in table.attributes:
        known = sorted(table.attributes)
        raise ConfigError(
            f"scenario.{key}: the dataset has no attribute '{attribute}'{nearest(attribute, known)}; "
            f"it has {', '.join(known) or 'none'}"
        )
    values = table.attributes[attribute]
    if np.issubdtype(values.dtype, np.floating):
        return brackets(values, edges), len(edges) + 1
    return values.astype(np.int64), int(values.max(initial=-1)) + 1


def groups_by_attributes(
    table: SampleTable,
    attributes: Sequence[str],
    train: np.ndarray,
    edges: Sequence[float],
    keep_empty: bool = False,
) -> Groups:
    """Number the combinations of the attributes' values by descending number of training samples.

    Ties keep the order of the combinations. A sample that lacks a value is in no group.

    Args:
        table: the samples.
        attributes: names; numbers (ages) are cut at `edges`.
        train: indices of the training samples: they decide values and order.
        edges: of the numbers.
        keep_empty: keep combinations without a training sample (as the original does).

    Raises:
        ConfigError: an unknown attribute, or fewer than two groups.
    """
    coded = [codes_of(table, name, edges, "groups") for name in attributes]
    seen = [np.unique(codes[train][codes[train] >= 0]).tolist() for codes, _ in coded]
    values = list(itertools.product(*seen))
    found = []
    for combination in values:
        match = np.ones(table.num_samples, dtype=bool)
        for (codes, _), value in zip(coded, combination, strict=True):
            match &= codes == value
        found.append(match)
    sizes = [int(match[train].sum()) for match in found]
    order = [i for i in sorted(range(len(values)), key=lambda i: -sizes[i]) if sizes[i] or keep_empty]
    ids = np.full(table.num_samples, -1, dtype=np.int64)
    for number, i in enumerate(order):
        ids[found[i]] = number
    numbers = [np.issubdtype(table.attributes[name].dtype, np.floating) for name in attributes]
    names = tuple(
        ", ".join(
            bracket_names(edges)[value] if number else f"{name} {value}"
            for name, value, number in zip(attributes, values[i], numbers, strict=True)
        )
        for i in order
    )
    return Groups(ids, tuple(values[i] for i in order), names)


def groups_by_label(table: SampleTable, train: np.ndarray) -> Groups:
    """The classes as groups, by descending number of training samples."""
    sizes = np.bincount(table.labels[train], minlength=table.num_classes)
    order = [c for c in sorted(range(table.num_classes), key=lambda c: -sizes[c]) if sizes[c]]
    ids = np.full(table.num_samples, -1, dtype=np.int64)
    for number, label in enumerate(order):
        ids[table.labels == label] = number
    return Groups(ids, tuple((c,) for c in order), tuple(table.class_names[c] for c in order))
