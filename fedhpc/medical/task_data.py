"""What the round loop reads during one task: a client's samples of that task, and behind them its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedhpc.data.balanced import remembered
from fedhpc.data.samples import Samples
from fedhpc.data.stores import Store
from fedhpc.data.timeline import Timeline
from fedhpc.medical.recipes._base import Memory, Setting


class TaskRows:
    """Indices of the samples of every client in every task, with the memories a recipe asks for; reads no pixels.

    Memories follow from the timeline and the seed alone, so they are recomputed, not saved.

    Args:
        timeline: who holds what.
        labels: int [num_samples] class of every sample.
        memory: what is kept of finished tasks, or None.
        seed: of the run.
    """

    def __init__(self, timeline: Timeline, labels: np.ndarray, memory: Memory | None, seed: int) -> None:
        self._timeline, self._labels, self._memory, self._seed = timeline, labels, memory, seed
        self._latest: dict[int, tuple[int, np.ndarray]] = {}

    def current(self, client: int, task: int) -> np.ndarray:
        """Training samples of a client's task, in the order of a sequential pass."""
        return self._timeline.train[client][task]

    def memory(self, client: int, task: int) -> np.ndarray:
        """What a client remembers of the tasks before this one."""
        if self._memory is None:
            return np.zeros(0, dtype=np.int64)
        if self._latest.get(client, (-1,))[0] != task:  # asked for in every round, and the same throughout a task
            finished = list(self._timeline.train[client][:task])
            rule = self._memory
            kept = remembered(finished, rule.capacity, rule.policy, self._labels, self._seed, client)
            self._latest[client] = task, kept
        return self._latest[client][1]

    def setting(self, batch_size: int, steps: int, rounds_per_task: int) -> Setting:
        """What a recipe's batches need to know."""
        return Setting(
            self._seed,
            batch_size,
            steps,
            rounds_per_task,
            labels=lambda client, task: self._labels[self.current(client, task)],
            groups=lambda client, task: self._timeline.group[self.current(client, task)],
            num_memory=lambda client, task: len(self.memory(client, task)),
        )


class PixelRows:
    """Stands for the pixels uint8 [n, H, W, C] of some samples, and reads only those that are indexed.

    A round of five steps of ten samples would else read a client's whole task, whatever its size.
    """

    def __init__(self, store: Store, rows: np.ndarray, device: torch.device) -> None:
        self._store, self._rows, self._device = store, rows, device

    def __getitem__(self, which: Tensor | slice) -> Tensor:
        rows = self._rows[which.cpu().numpy() if isinstance(which, Tensor) else which]
        return torch.from_numpy(self._store.images(rows)).to(self._device)


class TaskData:
    """The `ClientData` of one task.

    `num_train` counts the current task only: memories weigh nothing in averages.

    Args:
        store: the dataset.
        labels: int [num_samples] class of every sample.
        timeline: who holds what.
        rows: see `TaskRows`.
        task: number of the task.
        device: where samples are put.
    """

    def __init__(
        self, store: Store, labels: np.ndarray, timeline: Timeline, rows: TaskRows, task: int, device: torch.device
    ) -> None:
        self._store, self._labels, self._timeline = store, labels, timeline
        self._rows, self._task, self._device = rows, task, device
        self.num_train = [len(tasks[task]) for tasks in timeline.train]
        self.num_test = [len(tasks[task]) for tasks in timeline.test]

    def train(self, client: int) -> Samples:
        """The current task's samples in their stored order, then the memory's; pixels are read when they are used."""
        return self.train_of(client, self._task)

    def train_of(self, client: int, task: int) -> Samples:
        """The same of any task."""
        rows = np.concatenate([self._rows.current(client, task), self._rows.memory(client, task)])
        pixels: Any = PixelRows(self._store, rows, self._device)
        return Samples(pixels, self._classes(rows))

    def validation_of(self, client: int, task: int) -> Samples:
        """A client's validation samples of a task."""
        return self.read(self._timeline.validation[client][task])

    def test(self, client: int) -> Samples:
        """The current task's test samples."""
        return self.read(self._timeline.test[client][self._task])

    def read(self, indices: np.ndarray | Sequence[int]) -> Samples:
        """Any samples of the dataset."""
        rows = np.asarray(indices, dtype=np.int64)
        pixels = torch.from_numpy(self._store.images(rows))
        return Samples(pixels.to(self._device), self._classes(rows))

    def _classes(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(self._labels[rows].astype(np.int64, copy=False)).to(self._device)
