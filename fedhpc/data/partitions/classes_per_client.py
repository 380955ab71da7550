"""Each client holds a few classes, in train and in test: the rule of the HEM study (arXiv 2405.02360, eq. 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhpc.data.partition import Partition, assemble, check_range, cut, shuffled, train_test
from fedhpc.data.table import SampleTable
from fedhpc.errors import ConfigError


@dataclass(frozen=True)
class ClassesPerClient:
    """Client i of C classes holds the classes (i + n) mod C, n = 0 .. classes_per_client - 1.

    Each class's train samples are cut near-evenly over the clients that hold it, and so are its test samples.

    Attributes:
        clients: number of clients. With fewer clients than classes some classes may stay unused.
        classes_per_client: classes each client holds.
        test_fraction: share of the samples kept for testing where the dataset stores no split.
    """

    clients: int
    classes_per_client: int = 5
    test_fraction: float = 0.2

    def __post_init__(self) -> None:
        check_range("clients", self.clients, 1)
        check_range("classes_per_client", self.classes_per_client, 1)
        check_range("test_fraction", self.test_fraction, 0, 1, open_ends=True)

    def split(self, table: SampleTable, seed: int) -> Partition:
        """Return the partition; ConfigError if a class has fewer samples than clients that hold it."""
        if self.classes_per_client > table.num_classes:
            raise ConfigError(
                f"partition.classes_per_client: {self.classes_per_client} asked for, "
                f"the dataset has {table.num_classes} classes"
            )
        parts = []
        for name, samples in zip(("train", "test"), train_test(table, self.test_fraction, seed), strict=True):
            parts.append(self._divide(table, samples, seed, name))
        return assemble(table, *parts)

    def holders(self, label: int, num_classes: int) -> list[int]:
        """Return the clients that hold a class, in ascending order."""
        return [i for i in range(self.clients) if (label - i) % num_classes < self.classes_per_client]

    def _divide(self, table: SampleTable, samples: np.ndarray, seed: int, name: str) -> list[np.ndarray]:
        pieces: list[list[np.ndarray]] = [[] for _ in range(self.clients)]
        for label in range(table.num_classes):
            own = samples[table.labels[samples] == label]
            holders = self.holders(label, table.num_classes)
            if len(own) < len(holders):
                raise ConfigError(
                    f"partition: class '{table.class_names[label]}' has {len(own)} {name} samples for the "
                    f"{len(holders)} of {self.clients} clients that hold it; lower partition.clients or "
                    f"partition.classes_per_client, or change partition.test_fraction"
                )
            if holders:
                mixed = shuffled(own, seed, "classes_per_client", name, label)
                for client, piece in zip(holders, cut(mixed, len(holders)), strict=True):
                    pieces[client].append(piece)
        return [np.concatenate(p) for p in pieces]


PARTITION = ClassesPerClient
