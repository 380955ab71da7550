"""Who takes part in a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedhpc.errors import ConfigError
from fedhpc.seeding import generator


class CohortPlan(Protocol):
    """Chooses the clients of each round; the same answer on every rank.

    Attributes:
        largest: the most clients any round has.
    """

    @property
    def largest(self) -> int:
        """See the class."""

    def clients(self, round: int) -> tuple[int, ...]:
        """Client ids of a round (rounds done so far), ascending, at least one."""


@dataclass(frozen=True)
class SampledCohorts:
    """`size` of `num_clients` clients without replacement, drawn anew each round from (seed, round)."""

    num_clients: int
    size: int
    seed: int

    def __post_init__(self) -> None:
        if not 1 <= self.size <= self.num_clients:
            raise ConfigError(f"cohort.size must lie between 1 and the {self.num_clients} clients, got {self.size}")

    @property
    def largest(self) -> int:
        """See `CohortPlan`."""
        return self.size

    def clients(self, round: int) -> tuple[int, ...]:
        """See `CohortPlan`."""
        if self.size == self.num_clients:
            return tuple(range(self.num_clients))
        chosen = generator(self.seed, "cohort", round).choice(self.num_clients, self.size, replace=False)
        return tuple(int(c) for c in np.sort(chosen))


@dataclass(frozen=True)
class ListedCohorts:
    """Explicit participation lists, one per round.

    Raises:
        ConfigError: an empty round, or a client twice in one.
    """

    rounds: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        for number, listed in enumerate(self.rounds):
            if not listed:
                raise ConfigError(f"round {number + 1} has no participants")
            if len(set(listed)) != len(listed):
                raise ConfigError(f"round {number + 1} names a client twice: {sorted(listed)}")

    @property
    def largest(self) -> int:
        """See `CohortPlan`."""
        return max(len(r) for r in self.rounds)

    def clients(self, round: int) -> tuple[int, ...]:
        """See `CohortPlan`."""
        return tuple(sorted(self.rounds[round]))


def cohort_size(num_clients: int, size: int | None, fraction: float | None) -> int:
    """Clients per round from the config's `size` or `fraction`; all where neither is given.

    A fraction is rounded to the nearest whole client, at least one (0.29 of 100 is 29, not the 28 of a floor).
    """
    if size is not None:
        return size
    return num_clients if fraction is None else max(1, round(fraction * num_clients))
