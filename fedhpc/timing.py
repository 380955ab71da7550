"""Named phases on a monotonic clock, and the answer to "what were you doing?" when something fails."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_MAX_EVENTS = 100_000


@dataclass(frozen=True)
class Event:
    """One finished phase: seconds since the stopwatch was made."""

    name: str
    start: float
    seconds: float
    detail: dict[str, int]


class Stopwatch:
    """Adds up seconds per phase.

    Args:
        synchronize: called before each reading, so that queued work of an accelerator is counted where it belongs.

    Attributes:
        totals: seconds per phase.
        events: the phases that are over, the first 100,000.
        current: the phases that are open, outermost first.
        ticks: grows whenever a phase begins or ends.
    """

    def __init__(self, synchronize: Callable[[], None] | None = None) -> None:
        self._synchronize = synchronize or (lambda: None)
        self._origin = time.perf_counter()
        self.totals: defaultdict[str, float] = defaultdict(float)
        self.events: list[Event] = []
        self.current: list[str] = []
        self.ticks = 0

    def now(self) -> float:
        """Seconds since the stopwatch was made, after the device has finished its work."""
        self._synchronize()
        return time.perf_counter() - self._origin

    @contextmanager
    def phase(self, name: str, **detail: int) -> Iterator[None]:
        """Time a block; an exception that leaves it remembers the innermost phase (see `doing_of`)."""
        start = self.now()
        self.ticks += 1
        self.current.append(describe(name, detail))
        try:
            yield
        except BaseException as error:
            if not hasattr(error, "fedhpc_doing"):
                error.fedhpc_doing = self.current[-1]  # type: ignore[attr-defined]
            raise
        finally:
            self.current.pop()
            self.ticks += 1
        seconds = self.now() - start
        self.totals[name] += seconds
        if len(self.events) < _MAX_EVENTS:
            self.events.append(Event(name, start, seconds, detail))


def describe(name: str, detail: dict[str, int]) -> str:
    """`train`, {client: 3, round: 4} becomes `train (client 3, round 4)`."""
    inside = ", ".join(f"{key} {value}" for key, value in detail.items())
    return f"{name} ({inside})" if inside else name


def doing_of(error: BaseException) -> str:
    """What the process was doing when the error was raised; empty if no phase was open."""
    return getattr(error, "fedhpc_doing", "")
