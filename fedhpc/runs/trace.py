"""Phases of all ranks as a trace that opens in Perfetto or chrome://tracing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedhpc.timing import Stopwatch

_MOST = 20_000
"""Events of one rank."""
_MOST_OF_ALL = 200_000
"""Events of all ranks together: root holds them at once, and one message must stay far below 2^31 bytes."""


def trace_events(clock: Stopwatch, rank: int, ranks: int = 1) -> tuple[list[dict[str, Any]], int]:
    """One complete event per phase of this rank; times in microseconds on the rank's own clock.

    Args:
        clock: of this rank.
        rank: its number.
        ranks: how many there are; they share the room.

    Returns:
        The first events, 20,000 at most, and how many were left out.
    """
    kept = clock.events[: min(_MOST, max(1, _MOST_OF_ALL // ranks))]
    events = [
        {
            "name": e.name,
            "ph": "X",
            "pid": rank,
            "tid": 0,
            "ts": round(e.start * 1e6),
            "dur": round(e.seconds * 1e6),
            "args": e.detail,
        }
        for e in kept
    ]
    return events, clock.ticks // 2 - len(kept)


def trace_file(gathered: Sequence[tuple[list[dict[str, Any]], int]]) -> dict[str, Any]:
    """The content of the trace's file, from what all ranks gave."""
    return {
        "traceEvents": [event for events, _ in gathered for event in events],
        "otherData": {"events_left_out": sum(left for _, left in gathered)},
    }
