"""What a run shows and writes while it goes: records to metrics.jsonl, progress to the terminal or the batch log."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from fedhpc.commands._session import say
from fedhpc.runs.records import Record, RecordWriter

if TYPE_CHECKING:
    from fedhpc.federated.evaluation import AccuracySummary
    from fedhpc.federated.records import RoundTimes
    from fedhpc.federated.server import RoundSummary
    from fedhpc.federated.state import Progress

_QUIET_SECONDS = 0.1
"""Least time between two plain progress lines, so that rounds of milliseconds do not fill a log."""


class RunSink:
    """Root's sink.

    Args:
        writer: takes the records; flushed after every round and evaluation.
        rounds: the cap, for the time left.
        target: target accuracy, shown beside the accuracy.
    """

    def __init__(self, writer: RecordWriter, rounds: int, target: float | None) -> None:
        self._writer = writer
        self._rounds = rounds
        self._target = f" of {target:.4g}" if target is not None else ""
        self._recent: deque[float] = deque(maxlen=20)
        self._last_line = 0.0
        self._accuracy = ""
        self._bar: Any = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=rounds, unit="round", dynamic_ncols=True)

    def record(self, what: str, value: float, unit: str, round: int, seconds: float, **where: Any) -> None:
        """See `federated.records.Sink`."""
        self._writer.write(Record(what, value, unit, round, seconds, **where))

    def round_done(self, progress: Progress, summary: RoundSummary, times: RoundTimes) -> None:
        """See `federated.records.Sink`."""
        self._writer.flush()
        self._recent.append(times.total)
        for client, why in summary.diverged.items():
            self._print(f"round {progress.round}: client {client} is skipped: {why}")
        if self._bar is not None:
            self._bar.update(progress.round - self._bar.n)
        elif time.monotonic() - self._last_line >= _QUIET_SECONDS:
            self._print(self._line(progress))

    def evaluated(self, progress: Progress, summary: AccuracySummary) -> None:
        """See `federated.records.Sink`."""
        self._writer.flush()
        when = f"after round {progress.round}" if progress.round else "before training"
        self._accuracy = f"accuracy {summary.mean:.4f}{self._target} {when}"
        if self._bar is not None:
            self._bar.set_postfix_str(self._accuracy, refresh=False)

    def close(self) -> None:
        """Write out what is left and leave the terminal in order."""
        self._writer.close()
        if self._bar is not None:
            self._bar.close()

    def _print(self, line: str) -> None:
        self._last_line = time.monotonic()
        if self._bar is not None:
            self._bar.write(line)
        else:
            say(f"{time.strftime('%H:%M:%S')} {line}")

    def _line(self, progress: Progress) -> str:
        mean = sum(self._recent) / len(self._recent)
        left = mean * (self._rounds - progress.round)
        known = f"  {self._accuracy}" if self._accuracy else ""
        return f"round {progress.round}/{self._rounds}{known}  {mean:.3g} s/round  at most {_duration(left)} left"


def _duration(seconds: float) -> str:
    """`75.2` becomes `1m15s`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
