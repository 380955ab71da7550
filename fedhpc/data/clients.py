"""The samples of each client, read from a shard store by a partition."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch

from fedhpc.data.partition import Partition
from fedhpc.data.samples import Samples
from fedhpc.data.stores import Store


class ClientData(Protocol):
    """Where a rank gets its clients' samples from."""

    num_train: list[int]
    num_test: list[int]

    def train(self, client: int) -> Samples:
        """Training samples of one client, on the rank's device."""

    def test(self, client: int) -> Samples:
        """Test samples of one client, on the rank's device."""


class PartitionedData:
    """Reads a client's pixels when they are asked for, so that memory does not grow with the number of clients.

    Args:
        store: the dataset; its pixels are memory-mapped, one copy per node in the page cache.
        labels: [num_samples] class of every sample of the dataset.
        partition: which samples each client owns.
        device: where samples are put.
    """

    def __init__(self, store: Store, labels: np.ndarray, partition: Partition, device: torch.device) -> None:
        self._store = store
        self._labels = labels
        self._partition = partition
        self._device = device
        self.num_train = [len(indices) for indices in partition.train]
        self.num_test = [len(indices) for indices in partition.test]

    def train(self, client: int) -> Samples:
        """See `ClientData`."""
        return self._read(self._partition.train[client])

    def test(self, client: int) -> Samples:
        """See `ClientData`."""
        return self._read(self._partition.test[client])

    def _read(self, indices: np.ndarray) -> Samples:
        pixels = torch.from_numpy(self._store.images(indices))
        labels = torch.from_numpy(self._labels[indices].astype(np.int64, copy=False))
        return Samples(pixels.to(self._device), labels.to(self._device))
