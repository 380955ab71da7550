"""Every task holds all of a client's samples: a reference without temporal change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedhpc.medical.scenarios._base import Scenario


@dataclass(frozen=True, kw_only=True)
class Repeated(Scenario):
    """The same samples in every task."""

    copies: ClassVar[bool] = True

    def train_counts(self, sizes: np.ndarray, num_tasks: int, client: int, rng: np.random.Generator) -> np.ndarray:
        """All samples, every time."""
        return np.tile(sizes, (num_tasks, 1))


SCENARIO = Repeated
