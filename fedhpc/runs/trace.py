"""Phases of all ranks as a trace that opens in Perfetto or chrome://tracing."""

from __future__ import annotations

from typing import Any

from fedhpc.timing import Stopwatch

_MOST = 20_000


def trace_events(clock: Stopwatch, rank: int) -> list[dict[str, Any]]:
    """One complete event per phase of this rank, the first 20,000; times in microseconds on the rank's own clock."""
    return [
        {
            "name": e.name,
            "ph": "X",
            "pid": rank,
            "tid": 0,
            "ts": round(e.start * 1e6),
            "dur": round(e.seconds * 1e6),
            "args": e.detail,
        }
        for e in clock.events[:_MOST]
    ]
