"""One class after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedhpc.config import Limits
from fedhpc.data.table import SampleTable
from fedhpc.medical.groups import Groups
from fedhpc.medical.scenarios._base import Scenario


@dataclass(frozen=True, kw_only=True)
class ClassIncremental(Scenario):
    """Task t holds the t-th class that has training samples; `tasks` is taken from the data.

    A client without that class has an empty task and sits it out, unless `min_task_size` forbids that.
    """

    min_task_size: Annotated[int, Limits(at_least=0), "fewest of a client's task; 0: it may sit tasks out"] = 0

    def num_tasks(self, table: SampleTable, train: np.ndarray) -> int:
        """Number of classes with training samples."""
        return len(np.unique(table.labels[train]))

    def cells(self, table: SampleTable, groups: Groups, train: np.ndarray) -> tuple[np.ndarray, int]:
        """The classes, numbered among those with training samples."""
        present = np.unique(table.labels[train])
        found = np.searchsorted(present, table.labels).clip(max=len(present) - 1)
        return np.where(present[found] == table.labels, found, -1), len(present)

    def train_counts(self, sizes: np.ndarray, num_tasks: int, client: int, rng: np.random.Generator) -> np.ndarray:
        """All samples of one class in each task."""
        return np.diag(sizes)

    def test_counts(self, sizes: np.ndarray, train: np.ndarray) -> np.ndarray:
        """The same."""
        return np.diag(sizes)


SCENARIO = ClassIncremental
