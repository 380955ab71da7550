"""Clients are the values of one attribute of the samples (sex, skin type, site, age group)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedhpc.data.partition import Partition, assemble, check_range, deal, train_test
from fedhpc.data.table import SampleTable
from fedhpc.errors import ConfigError, nearest


@dataclass(frozen=True)
class ByAttribute:
    """Group v, cut into clients_per_value pieces, gives clients v * clients_per_value and on.

    A category attribute has one group per value that occurs, in the order of the codes. A number attribute needs
    `edges`: ascending numbers e_1 < .. < e_m give the groups x < e_1, e_1 <= x < e_2, .., e_m <= x.

    Attributes:
        attribute: name of the attribute in the dataset.
        clients_per_value: pieces each group is cut into, with near-equal sizes and class counts.
        edges: group borders of a number attribute.
        missing: samples without a value are left out (`drop`), form one more group (`group`) or are refused
            (`refuse`). The partition's notes count them.
        min_samples: groups with fewer samples in all are left out and noted.
        test_fraction: share of the samples kept for testing where the dataset stores no split.
    """

    attribute: str
    clients_per_value: int = 1
    edges: tuple[float, ...] = ()
    missing: Literal["drop", "group", "refuse"] = "drop"
    min_samples: int = 0
    test_fraction: float = 0.2

    def __post_init__(self) -> None:
        check_range("clients_per_value", self.clients_per_value, 1)
        check_range("min_samples", self.min_samples, 0)
        check_range("test_fraction", self.test_fraction, 0, 1, open_ends=True)
        if not all(a < b for a, b in zip(self.edges, self.edges[1:], strict=False)):
            raise ConfigError(f"partition.edges must ascend, got {list(self.edges)}")

    def split(self, table: SampleTable, seed: int) -> Partition:
        """Return the partition; ConfigError for an unknown attribute, refused gaps or too small groups."""
        codes = self._codes(table)
        groups, notes = self._groups(codes)
        if not groups:
            raise ConfigError(f"partition: no group of attribute '{self.attribute}' is left; {'; '.join(notes)}")
        parts: list[list[np.ndarray]] = []
        for name, samples in zip(("train", "test"), train_test(table, self.test_fraction, seed), strict=True):
            clients: list[np.ndarray] = []
            for code in groups:
                own = samples[codes[samples] == code]
                if len(own) < self.clients_per_value:
                    raise ConfigError(
                        f"partition: group {code} of attribute '{self.attribute}' has {len(own)} {name} samples for "
                        f"{self.clients_per_value} clients; raise partition.min_samples to leave small groups out"
                    )
                clients += deal(own, table, self.clients_per_value, seed, "by_attribute", name, code)
            parts.append(clients)
        return assemble(table, *parts, notes=notes)

    def _codes(self, table: SampleTable) -> np.ndarray:
        """Group number of every sample, -1 where the attribute has no value."""
        known = sorted(table.attributes)
        if self.attribute not in table.attributes:
            raise ConfigError(
                f"partition.attribute: the dataset has no '{self.attribute}'{nearest(self.attribute, known)}; "
                f"it has: {', '.join(known) or 'no attributes'}"
            )
        values = table.attributes[self.attribute]
        if np.issubdtype(values.dtype, np.floating):
            if not self.edges:
                raise ConfigError(
                    f"partition.edges is needed: attribute '{self.attribute}' is a number, not a category"
                )
            return np.where(np.isnan(values), -1, np.searchsorted(self.edges, values, side="right"))
        if self.edges:
            raise ConfigError(f"partition.edges is for numbers; attribute '{self.attribute}' is a category")
        return values.astype(np.int64)

    def _groups(self, codes: np.ndarray) -> tuple[list[int], list[str]]:
        """Return the groups that become clients and notes on what was left out."""
        notes = []
        values, sizes = np.unique(codes, return_counts=True)
        gaps = int(sizes[values == -1].sum())
        if gaps and self.missing == "refuse":
            raise ConfigError(
                f"partition.missing: {gaps} of {len(codes)} samples have no '{self.attribute}'; "
                f"'drop' leaves them out, 'group' makes them a group of their own"
            )
        if gaps:
            fate = "are left out" if self.missing == "drop" else "form the last group"
            notes.append(f"{gaps} of {len(codes)} samples without '{self.attribute}' {fate}")
        order = [v for v in values.tolist() if v >= 0] + ([-1] if gaps and self.missing == "group" else [])
        size = dict(zip(values.tolist(), sizes.tolist(), strict=True))
        for code in [c for c in order if size[c] < self.min_samples]:
            notes.append(f"group {code} of '{self.attribute}' left out: {size[code]} samples < {self.min_samples}")
        return [c for c in order if size[c] >= self.min_samples], notes


PARTITION = ByAttribute
