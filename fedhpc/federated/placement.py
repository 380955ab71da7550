"""Which rank trains which client this round; never changes a bit of the result."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def spread(costs: Sequence[float], ranks: Sequence[int]) -> list[int]:
    """Assign items to ranks, longest first to the least loaded rank; ties go to the lower item and rank.

    Args:
        costs: expected seconds (or any size) of each item.
        ranks: ranks that take items.

    Returns:
        The rank of each item.
    """
    loads = [(0.0, position) for position in range(len(ranks))]
    assigned = [0] * len(costs)
    for item in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        load, position = heapq.heappop(loads)
        assigned[item] = ranks[position]
        heapq.heappush(loads, (load + costs[item], position))
    return assigned


def makespan(costs: Sequence[float], assigned: Sequence[int]) -> float:
    """Load of the busiest rank."""
    loads: dict[int, float] = {}
    for cost, rank in zip(costs, assigned, strict=True):
        loads[rank] = loads.get(rank, 0.0) + cost
    return max(loads.values(), default=0.0)


@dataclass(frozen=True)
class Placement:
    """Places the cohort of each round.

    Attributes:
        homes: [num_clients] rank where each client's state lives between rounds.
        ranks: ranks that host clients.
        balanced: spread each cohort anew over all ranks; else every client trains at home.
    """

    homes: tuple[int, ...]
    ranks: tuple[int, ...]
    balanced: bool = True

    @classmethod
    def build(cls, num_samples: Sequence[int], size: int, root_hosts: bool = True, balanced: bool = True) -> Placement:
        """Give every client a home such that ranks hold about equally many samples."""
        ranks = tuple(range(size)) if root_hosts or size == 1 else tuple(range(1, size))
        return cls(tuple(spread([float(n) for n in num_samples], ranks)), ranks, balanced)

    def at_home(self, rank: int) -> list[int]:
        """Clients whose home is this rank, ascending."""
        return [client for client, home in enumerate(self.homes) if home == rank]

    def among(self, kept: Sequence[int]) -> Placement:
        """The placement on the ranks that are left, renumbered; clients without a home are dealt out to them.

        Args:
            kept: former ranks of those that are left, in their new order.
        """
        new = {old: rank for rank, old in enumerate(kept)}
        ranks = tuple(new[r] for r in self.ranks if r in new) or tuple(range(len(kept)))
        homeless = [client for client, home in enumerate(self.homes) if home not in new]
        found = dict(zip(homeless, spread([1.0] * len(homeless), ranks), strict=True))
        homes = tuple(found[c] if c in found else new[home] for c, home in enumerate(self.homes))
        return Placement(homes, ranks, self.balanced)

    def plan(self, cohort: Sequence[int], costs: Sequence[float]) -> list[int]:
        """The rank that trains each client of the cohort.

        Balanced: longest expected seconds first; a client stays at home wherever that does not make the busiest
        rank busier than the plain spread would.
        """
        home = [self.homes[c] for c in cohort]
        if not self.balanced:
            return home
        plain = spread(costs, self.ranks)
        limit = makespan(costs, plain) * (1 + 1e-9)
        loads = dict.fromkeys(self.ranks, 0.0)
        least = [(0.0, rank) for rank in self.ranks]  # a heap; entries whose load is no longer true are passed over
        assigned = [0] * len(cohort)
        for i in sorted(range(len(cohort)), key=lambda i: (-costs[i], cohort[i])):
            while least[0][0] != loads[least[0][1]]:
                heapq.heappop(least)
            rank = home[i] if loads[home[i]] + costs[i] <= limit else least[0][1]
            assigned[i] = rank
            loads[rank] += costs[i]
            heapq.heappush(least, (loads[rank], rank))
        return assigned if max(loads.values()) <= limit else plain


class CostTable:
    """Expected seconds per client: measured where there is a measurement, else by samples.

    Every rank holds the same numbers (they come with the broadcast), so every rank computes the same plan.
    """

    def __init__(self, num_samples: Sequence[int]) -> None:
        self._samples = np.maximum(np.asarray(num_samples, dtype=np.float64), 1.0)
        self.seconds = np.full(len(num_samples), np.nan)

    def update(self, clients: Sequence[int], seconds: Sequence[float]) -> None:
        """Take new measurements; values that are not above zero count as unmeasured."""
        for client, value in zip(clients, seconds, strict=True):
            if value > 0:
                self.seconds[client] = value

    def expected(self, cohort: Sequence[int]) -> list[float]:
        """Expected seconds of each client of a cohort."""
        known = np.isfinite(self.seconds)
        rate = self.seconds[known].sum() / self._samples[known].sum() if known.any() else 1.0
        index = np.asarray(cohort, dtype=np.int64)
        guess = self._samples[index] * rate
        return [float(v) for v in np.where(known[index], self.seconds[index], guess)]
