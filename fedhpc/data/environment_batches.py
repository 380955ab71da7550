"""One minibatch of every training environment per step; numpy only.

A trial draws with replacement, as the original does; a federated client goes through its samples in epochs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


@dataclass(frozen=True)
class ClientEnvironmentBatches:
    """One minibatch of each environment that a client has, per local step; a `BatchPlan`.

    Every environment passes in fresh permutations of its own, from the stream `batches/<client>/<round>/<environment>`.
    A minibatch has `batch_size` samples, or all of an environment that has fewer; nothing repeats inside it.

    Attributes:
        seed: the run's seed.
        batch_size: samples of each environment per step.
        owned: per client, the environment of each of its training samples, in their order.
        epochs: passes over the client's largest environment per round; exactly one of `epochs` and `steps` is set.
        steps: local steps per round.
    """

    seed: int
    batch_size: int
    owned: Sequence[np.ndarray]
    epochs: int | None = None
    steps: int | None = None

    def environments(self, client: int) -> list[int]:
        """Environments of a client's training samples, ascending: that of each minibatch of a step."""
        return [int(e) for e in np.unique(self.owned[client])]

    def num_steps(self, num_samples: int) -> int:
        """See `BatchPlan.num_steps`; here `num_samples` is that of the client's largest environment."""
        return self.steps if self.steps is not None else (self.epochs or 0) * -(-num_samples // self.batch_size)

    def batches(self, client: int, round: int, num_samples: int) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield one array of positions per environment and local step (see `BatchPlan.batches`)."""
        positions = {e: np.flatnonzero(self.owned[client] == e) for e in self.environments(client)}
        endless = [self._endless(client, round, e, own) for e, own in positions.items()]
        for _ in range(self.num_steps(max(map(len, positions.values()), default=0))):
            yield tuple(next(stream) for stream in endless)

    def _endless(self, client: int, round: int, environment: int, own: np.ndarray) -> Iterator[np.ndarray]:
        stream = generator(self.seed, "batches", client, round, environment)
        size = min(self.batch_size, len(own))
        while True:
            order = stream.permutation(own)
            for start in range(0, len(order), size):
                yield order[start : start + size]
