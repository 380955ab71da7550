"""One minibatch of every training environment per step, drawn with replacement; numpy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhpc.errors import ConfigError
from fedhpc.seeding import generator


def balanced_weights(labels: np.ndarray) -> np.ndarray:
    """float32 [n] weights under which all classes present weigh the same: 1/(count of the row's class · classes)."""
    _, row_class, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return np.float32(1) / (counts[row_class] * len(counts)).astype(np.float32)


@dataclass(frozen=True)
class EnvironmentBatches:
    """Independent draws; the stream is `minibatch/<environment>/<step>`, so a restart needs no state.

    Attributes:
        seed: of the trial.
        batch_size: samples of each environment per step; it may exceed the number of samples there are.
        balanced: draw every class equally often.
    """

    seed: int
    batch_size: int
    balanced: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {self.batch_size}")

    def positions(self, environment: int, step: int, labels: np.ndarray) -> np.ndarray:
        """Return int64 [batch_size] positions into an environment's training samples.

        Args:
            environment: its index in the dataset.
            step: 0 for the first.
            labels: [n] classes of its training samples.

        Raises:
            ConfigError: there are none.
        """
        if not len(labels):
            raise ConfigError(f"environment {environment} has no training samples left; lower the holdout fraction")
        stream = generator(self.seed, "minibatch", environment, step)
        if not self.balanced:
            return stream.integers(len(labels), size=self.batch_size)
        order = np.argsort(labels, kind="stable")
        _, starts, counts = np.unique(labels[order], return_index=True, return_counts=True)
        chosen = stream.integers(len(starts), size=self.batch_size)
        within = (stream.random(self.batch_size) * counts[chosen]).astype(np.int64)
        positions: np.ndarray = order[starts[chosen] + within]
        return positions
