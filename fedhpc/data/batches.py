"""Which positions of a client's samples form each local step's minibatches; numpy only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedhpc.errors import ConfigError
from fedhpc.seeding import generator


class BatchPlan(Protocol):
    """Yields the minibatches of one client's local work; injectable, so that tests can dictate them."""

    def batches(self, client: int, round: int, num_samples: int) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield, per local step, a tuple of int64 position arrays into the client's `num_samples` train samples.

        An objective that needs one minibatch per step (ERM) gets 1-tuples.
        """
        ...

    def num_steps(self, num_samples: int) -> int:
        """Return how many local steps a client with `num_samples` samples takes per round."""
        ...


@dataclass(frozen=True)
class ShuffledBatches:
    """Plain minibatches: each epoch is a fresh permutation cut into ceil(n / batch_size) batches, the last smaller.

    With `steps`, a new permutation begins whenever an epoch ends before the steps are used up. The stream is
    `batches/<client>/<round>`: it depends neither on the rank nor on earlier rounds.

    Attributes:
        seed: the run's seed.
        batch_size: samples per minibatch.
        epochs: passes over the client's samples per round; exactly one of `epochs` and `steps` is set.
        steps: local steps per round.
    """

    seed: int
    batch_size: int
    epochs: int | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise ConfigError("local: set exactly one of local.epochs and local.steps")
        for name in ("batch_size", "epochs", "steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"local.{name} must be at least 1, got {value}")

    def num_steps(self, num_samples: int) -> int:
        """Return the local steps per round: `steps`, or `epochs` times the batches of an epoch."""
        return self.steps if self.steps is not None else (self.epochs or 0) * -(-num_samples // self.batch_size)

    def batches(self, client: int, round: int, num_samples: int) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield one 1-tuple of positions per local step (see `BatchPlan.batches`)."""
        if num_samples < 1:
            raise ConfigError(f"client {client} has no train samples to make batches of (round {round})")
        stream = generator(self.seed, "batches", client, round)
        left = self.num_steps(num_samples)
        while left > 0:
            order = stream.permutation(num_samples)
            for start in range(0, num_samples, self.batch_size)[:left]:
                yield (order[start : start + self.batch_size],)
                left -= 1


@dataclass(frozen=True)
class SupportQueryBatches(ShuffledBatches):
    """Two disjoint minibatches per local step: of one fresh permutation the first `batch_size` positions are support,
    the next `batch_size` query. A client with fewer than two batches' worth has its permutation cut in halves.

    The number of steps is that of plain training, so a step that sees twice the samples is not repeated twice.
    """

    def batches(self, client: int, round: int, num_samples: int) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield `(support, query)` positions per local step (see `BatchPlan.batches`).

        Raises:
            ConfigError: the client has fewer than two train samples.
        """
        if num_samples < 2:
            raise ConfigError(f"client {client} has {num_samples} train samples; support and query need at least 2")
        stream = generator(self.seed, "batches", client, round)
        size = min(self.batch_size, num_samples // 2)
        for _ in range(self.num_steps(num_samples)):
            order = stream.permutation(num_samples)
            query_end = 2 * size if num_samples >= 2 * self.batch_size else num_samples
            yield order[:size], order[size:query_end]
