"""What each node sent and how long it stood in each collective, written down whenever the run is saved."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

from fedhpc.comm.world import World

if TYPE_CHECKING:
    from fedhpc.federated.records import Sink

Counts = dict[str, tuple[int, int, float]]
"""Collective -> calls, payload bytes, seconds, of one rank."""


class TrafficLog:
    """Adds the ranks' counters up by node; between two writes nothing is sent, so a round has no further collective.

    What is written is what happened since the last write. So the records of a run that was resumed add up: what was
    counted after its checkpoint is superseded with the rounds it belongs to.

    Args:
        world: the ranks.
        sink: takes the records, on root.
    """

    def __init__(self, world: World, sink: Sink) -> None:
        self._world, self._sink = world, sink
        self.start()

    def start(self) -> None:
        """Forget what was counted so far, such as the way to the first round."""
        self._since, self._before = time.perf_counter(), self._counts()

    def write(self, round: int, seconds: float) -> None:
        """Record what happened since the last write; collective.

        Per node: calls and bytes are sums over its ranks, seconds are means over them, as ranks wait side by side.

        Args:
            round: rounds done.
            seconds: the training clock.
        """
        now, counts = time.perf_counter(), self._counts()
        none = (0, 0, 0.0)
        mine = {}
        for name, (calls, moved, spent) in counts.items():
            before = self._before.get(name, none)
            mine[name] = (calls - before[0], moved - before[1], spent - before[2])
        gathered = self._world.gather((self._world.host, now - self._since, mine))
        self._since, self._before = now, counts
        nodes: dict[str, list[tuple[float, Counts]]] = defaultdict(list)
        for host, elapsed, counted in gathered or []:
            nodes[host].append((elapsed, counted))
        for host, ranks in nodes.items():
            self._record(host, ranks, round, seconds)

    def _record(self, host: str, ranks: list[tuple[float, Counts]], round: int, seconds: float) -> None:
        at = (round, seconds)
        self._sink.record("loop_seconds", sum(elapsed for elapsed, _ in ranks) / len(ranks), "s", *at, host=host)
        for name in sorted({name for _, counts in ranks for name in counts}):
            found = [counts[name] for _, counts in ranks if name in counts]
            calls, moved, spent = (sum(values) for values in zip(*found, strict=True))
            if not calls:
                continue
            self._sink.record("collective_calls", calls, "calls", *at, host=host, collective=name)
            self._sink.record("collective_bytes", moved, "B", *at, host=host, collective=name)
            self._sink.record("collective_seconds", spent / len(ranks), "s", *at, host=host, collective=name)

    def _counts(self) -> Counts:
        world = self._world
        return {name: (calls, world.moved[name], world.spent[name]) for name, calls in world.calls.items()}
