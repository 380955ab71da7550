"""The localized split: each client's demographics drift over its tasks, independently of the other clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhpc.medical.apportion import near_equal, whole_table
from fedhpc.medical.scenarios._base import Scenario


@dataclass(frozen=True, kw_only=True)
class Localized(Scenario):
    """Near-equal tasks; how much of each group a task holds follows weights |N(0, 1)| drawn per client and group.

    The weights are scaled so that every sample is used and all tasks are equally large, for any number of groups. A
    client with one group only gets plain cuts.
    """

    def train_counts(self, sizes: np.ndarray, num_tasks: int, client: int, rng: np.random.Generator) -> np.ndarray:
        """A random table with the client's group sizes and near-equal tasks as its margins."""
        weights = np.abs(rng.standard_normal((len(sizes), num_tasks)))
        return whole_table(weights, sizes, near_equal(int(sizes.sum()), num_tasks)).T


SCENARIO = Localized
