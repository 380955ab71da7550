"""What each node sent, how long it stood in each collective and read samples: written down when the run is saved."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
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
        reading: the seconds that this rank has read samples so far.
    """

    def __init__(self, world: World, sink: Sink, reading: Callable[[], float] = lambda: 0.0) -> None:
        self._world, self._sink, self._reading = world, sink, reading
        self.start()

    def start(self) -> None:
        """Forget what was counted so far, such as the way to the first round."""
        self._since, self._before, self._read = time.perf_counter(), self._counts(), self._reading()

    def write(self, round: int, seconds: float) -> None:
        """Record what happened since the last write; collective.

        Per node: calls and bytes are sums over its ranks, seconds are means over them, as ranks wait side by side.

        Args:
            round: rounds done.
            seconds: the training clock.
        """
        now, counts, read = time.perf_counter(), self._counts(), self._reading()
        none = (0, 0, 0.0)
        mine = {}
        for name, (calls, moved, spent) in counts.items():
            before = self._before.get(name, none)
            mine[name] = (calls - before[0], moved - before[1], spent - before[2])
        gathered = self._world.gather((self._world.host, now - self._since, read - self._read, mine))
        self._since, self._before, self._read = now, counts, read
        nodes: dict[str, list[tuple[float, float, Counts]]] = defaultdict(list)
        for host, elapsed, read_there, counted in gathered or []:
            nodes[host].append((elapsed, read_there, counted))
        for host, ranks in nodes.items():
            self._record(host, ranks, round, seconds)

    def _record(self, host: str, ranks: list[tuple[float, float, Counts]], round: int, seconds: float) -> None:
        at = (round, seconds)
        self._sink.record("loop_seconds", sum(elapsed for elapsed, *_ in ranks) / len(ranks), "s", *at, host=host)
        self._sink.record("read_seconds", sum(read for _, read, _ in ranks) / len(ranks), "s", *at, host=host)
        for name in sorted({name for *_, counts in ranks for name in counts}):
            found = [counts[name] for *_, counts in ranks if name in counts]
            calls, moved, spent = (sum(values) for values in zip(*found, strict=True))
            if not calls:
                continue
            self._sink.record("collective_calls", calls, "calls", *at, host=host, collective=name)
            self._sink.record("collective_bytes", moved, "B", *at, host=host, collective=name)
            self._sink.record("collective_seconds", spent / len(ranks), "s", *at, host=host, collective=name)

    def _counts(self) -> Counts:
        world = self._world
        return {name: (calls, world.moved[name], world.spent[name]) for name, calls in world.calls.items()}
