"""One value of an attribute (an age bracket, a skin type) after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedhpc.config import Limits
from fedhpc.data.table import SampleTable
from fedhpc.medical.groups import Groups
from fedhpc.medical.scenarios._base import Scenario


@dataclass(frozen=True, kw_only=True)
class GroupIncremental(Scenario):
    """Task t holds the t-th value of `task_attribute` that has training samples; `tasks` is taken from the data.

    A client without that value has an empty task and sits it out, unless `min_task_size` forbids that.
    """

    min_task_size: Annotated[int, Limits(at_least=0), "fewest of a client's task; 0: it may sit tasks out"] = 0
    task_attribute: Annotated[str, "attribute whose values, in ascending order, are the tasks"] = "age"

    def num_tasks(self, table: SampleTable, train: np.ndarray) -> int:
        """Number of values with training samples."""
        return self.cells_of(table, train)[1]

    def cells(self, table: SampleTable, groups: Groups, train: np.ndarray) -> tuple[np.ndarray, int]:
        """The values, numbered among those with training samples."""
        return self.cells_of(table, train)

    def cells_of(self, table: SampleTable, train: np.ndarray) -> tuple[np.ndarray, int]:
        """See `cells`."""
        codes = self.task_codes(table, self.task_attribute)
        present = np.unique(codes[train][codes[train] >= 0])
        found = np.searchsorted(present, codes).clip(max=max(len(present) - 1, 0))
        return np.where(present[found] == codes, found, -1) if len(present) else codes * 0 - 1, len(present)

    def train_counts(self, sizes: np.ndarray, num_tasks: int, client: int, rng: np.random.Generator) -> np.ndarray:
        """All samples of one value in each task."""
        return np.diag(sizes)

    def test_counts(self, sizes: np.ndarray, train: np.ndarray) -> np.ndarray:
        """The same."""
        return np.diag(sizes)


SCENARIO = GroupIncremental
