"""Minibatches over temporal tasks: plain passes, class- or group-balanced draws, and replay of earlier tasks.

Batches are cut from passes; pass p of a client's task is a pure function of (seed, client, task, p), so a run goes on
in the middle of a task, on any number of ranks, without stored loader state. Only labels and groups are read, never
pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedhpc.errors import ConfigError
from fedhpc.seeding import generator

Order = Literal["stored", "shuffled"]
Keys = Callable[[int, int], np.ndarray]
"""(client, task) -> int [num_samples]: label or group of each of its training samples, in their order."""


def balanced_weights(keys: np.ndarray) -> np.ndarray:
    """Weight 1/n of each sample, n = how many share its key; every present key has the same total.

    Args:
        keys: int [n] labels or groups; negative (no group) is a key like the others.
    """
    _, where, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / counts[where])


@dataclass(frozen=True)
class TaskPasses:
    """Endless passes over a client's samples of the current task, cut into batches that go on from round to round.

    Attributes:
        seed: of the run.
        batch_size: samples per step; the last batch of a pass may be smaller.
        steps: local steps per round.
        rounds_per_task: rounds until the next task begins.
        order: `shuffled` (each pass anew) or `stored` (always the stored order, as the original).
        keys: with it, a pass is n draws with replacement, every present key equally likely; without, all samples.
        stream: name of its random stream.
        merge_single: join a last batch of one sample to the one before (batch norm can't train on one sample).
    """

    seed: int
    batch_size: int
    steps: int
    rounds_per_task: int
    order: Order = "shuffled"
    keys: Keys | None = None
    merge_single: bool = True
    stream: str = "passes"

    def __post_init__(self) -> None:
        for name in ("batch_size", "steps", "rounds_per_task"):
            if getattr(self, name) < 1:
                raise ConfigError(f"local.{name} must be at least 1, got {getattr(self, name)}")

    def num_steps(self, num_samples: int) -> int:
        """Steps per round."""
        return self.steps

    def batches(self, client: int, round: int, num_samples: int) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield one 1-tuple of positions per step (see `BatchPlan.batches`)."""
        task, begun = divmod(round, self.rounds_per_task)
        yield from self.from_step(client, task, begun * self.steps, num_samples, self.steps)

    def from_step(
        self, client: int, task: int, step: int, num_samples: int, num_steps: int
    ) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield the batches of some steps of a task, counted from its beginning."""
        if num_samples < 1:
            raise ConfigError(f"client {client} has no training samples in task {task + 1}")
        starts = self._starts(num_samples)
        current, order = -1, np.zeros(0, dtype=np.int64)
        for at in range(step, step + num_steps):
            number, batch = divmod(at, len(starts) - 1)
            if number != current:
                current, order = number, self.pass_order(client, task, number, num_samples)
            yield (order[starts[batch] : starts[batch + 1]],)

    def pass_order(self, client: int, task: int, number: int, num_samples: int) -> np.ndarray:
        """Positions int64 [num_samples] of one pass."""
        if self.keys is None and self.order == "stored":
            return np.arange(num_samples)
        rng = generator(self.seed, self.stream, client, task, number)
        if self.keys is None:
            return rng.permutation(num_samples)
        weights = balanced_weights(self.keys(client, task))
        if len(weights) != num_samples:
            raise ConfigError(f"client {client} task {task + 1}: {len(weights)} labels for {num_samples} samples")
        return rng.choice(num_samples, num_samples, replace=True, p=weights / weights.sum())

    def _starts(self, num_samples: int) -> list[int]:
        starts = [*range(0, num_samples, self.batch_size), num_samples]
        if self.merge_single and len(starts) > 2 and num_samples - starts[-2] == 1:
            del starts[-2]
        return starts


@dataclass(frozen=True)
class ReplayPasses:
    """Batches of the current task, each joined by samples of earlier tasks from the client's memory.

    A client's samples are those of the current task and, behind them, those of its memory; the first task is plain.

    Attributes:
        current: batches of the task; its `batch_size` is what is left for the task.
        memory_batch: samples from memory per step.
        num_memory: (client, task) -> samples in memory while that task is learnt.
        memory_keys: labels or groups of the memory's samples, to draw from it in balance.
        first_batch: samples per step while the memory is empty; None takes the task's batch size.
    """

    current: TaskPasses
    memory_batch: int
    num_memory: Callable[[int, int], int]
    memory_keys: Keys | None = None
    first_batch: int | None = None

    def num_steps(self, num_samples: int) -> int:
        """Steps per round."""
        return self.current.steps

    def batches(self, client: int, round: int, num_samples: int) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield one 1-tuple per step: positions of the task, then of the memory (see `BatchPlan.batches`)."""
        plan, task = self.current, round // self.current.rounds_per_task
        stored = self.num_memory(client, task)
        if not stored:
            whole = self.first_batch or plan.batch_size
            yield from replace(plan, batch_size=whole).batches(client, round, num_samples)
            return
        own = num_samples - stored
        memory = replace(
            plan,
            batch_size=self.memory_batch,
            order="shuffled",
            keys=self.memory_keys,
            merge_single=False,
            stream="replay",
        )
        pairs = zip(plan.batches(client, round, own), memory.batches(client, round, stored), strict=True)
        for (now,), (before,) in pairs:
            yield (np.concatenate([now, own + before]),)


def remembered(
    tasks: list[np.ndarray], capacity: int | None, policy: Literal["reservoir", "ring"], labels: np.ndarray, seed: int,
    client: int,
) -> np.ndarray:  # fmt: skip
    """Samples that a client's memory holds after some tasks; a pure function, so memories need no checkpoint.

    Args:
        tasks: indices of the samples of each finished task, in the order in which they were seen.
        capacity: most samples in memory; None keeps all.
        policy: `reservoir` (every sample seen so far equally likely; Vitter, 1985) or `ring` (the latest of each
            class, the capacity divided evenly over the classes seen).
        labels: int [num_samples] class of every sample of the dataset.
        seed: of the run.
        client: whose memory.

    Returns:
        int64 indices, at most `capacity`.
    """
    seen = np.concatenate([np.zeros(0, dtype=np.int64), *tasks])
    if capacity is None or len(seen) <= capacity:
        return seen
    if policy == "ring":
        classes = np.unique(labels[seen])
        quota = [capacity // len(classes) + (c < capacity % len(classes)) for c in range(len(classes))]
        kept = [
            seen[labels[seen] == label][-share:] if share else seen[:0]
            for label, share in zip(classes, quota, strict=True)
        ]
        return np.concatenate(kept)
    memory = seen[:capacity].copy()
    draws = generator(seed, "memory", client)
    for number in range(capacity, len(seen)):
        slot = int(draws.integers(number + 1))
        if slot < capacity:
            memory[slot] = seen[number]
    return memory
