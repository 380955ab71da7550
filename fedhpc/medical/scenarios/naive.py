"""Each client's samples in random order, cut into tasks of equal size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhpc.data.table import SampleTable
from fedhpc.medical.apportion import near_equal
from fedhpc.medical.groups import Groups
from fedhpc.medical.scenarios._base import Scenario


@dataclass(frozen=True, kw_only=True)
class Naive(Scenario):
    """Tasks do not differ but by chance."""

    def cells(self, table: SampleTable, groups: Groups, train: np.ndarray) -> tuple[np.ndarray, int]:
        """One cell."""
        return np.zeros(table.num_samples, dtype=np.int64), 1

    def train_counts(self, sizes: np.ndarray, num_tasks: int, client: int, rng: np.random.Generator) -> np.ndarray:
        """Near-equal tasks."""
        return near_equal(int(sizes.sum()), num_tasks)[:, None]


SCENARIO = Naive
