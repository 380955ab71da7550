"""How far a sweep is, from its files alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhpc.errors import FedhpcError
from fedhpc.report.results import PlannedTrial
from fedhpc.report.trial_files import DONE, read_done, read_plan
from fedhpc.sweep.estimate import duration
from fedhpc.sweep.queue_files import QueueSettings, count, failures, states
from fedhpc.sweep.workers import WORKERS, Watcher

_MOST_READ = 400
"""Finished trials that are read to learn how long trials take."""
_MOST_SHOWN = 10


@dataclass(frozen=True)
class SweepStatus:
    """How far a sweep is.

    Attributes:
        done, running, failed, missing: trials; what a dead worker left counts as missing.
        abandoned: how many of the missing ones a dead worker left.
        workers: that live.
        seconds_left: until all is done with these workers, or with one; None before a trial has finished.
        why_failed: one line for each of the first failed trials.
    """

    done: int
    running: int
    failed: int
    missing: int
    abandoned: int
    workers: int
    seconds_left: float | None
    why_failed: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "why_failed": list(self.why_failed)}

    def text(self) -> str:
        """For a person."""
        left = ""
        if self.running or self.missing:
            known = self.seconds_left is not None
            left = f"; {duration(self.seconds_left or 0)} left" if known else "; time left not known yet"
            left += f" with {max(self.workers, 1)} worker{'s' if self.workers > 1 else ''}"
        line = f"{self.done} done, {self.running} running, {self.failed} failed, {self.missing} missing{left}"
        return "\n".join([line, *(f"  {why}" for why in self.why_failed)])


def sweep_status(folder: Path, settings: QueueSettings | None = None) -> SweepStatus:
    """Read a sweep's state; writes nothing.

    Raises:
        FedhpcError: the folder holds no sweep.
    """
    settings = settings or QueueSettings()
    planned = read_plan(folder).planned
    found = states(folder, [t.id for t in planned], settings)
    numbers = count(found)
    workers = _living(folder, settings)
    by_state = {state: [t for t in planned if found[t.id] == state] for state in ("done", "failed")}
    open_ = [t for t in planned if found[t.id] not in by_state]
    shown = tuple(_why(folder, t) for t in by_state["failed"][:_MOST_SHOWN])
    return SweepStatus(
        done=numbers.done,
        running=numbers.running,
        failed=numbers.failed,
        missing=numbers.missing + numbers.abandoned,
        abandoned=numbers.abandoned,
        workers=workers,
        seconds_left=_seconds_left(folder, by_state["done"], open_, max(workers, 1)),
        why_failed=shown,
    )


def _living(folder: Path, settings: QueueSettings) -> int:
    watcher, now = Watcher(folder, settings.stale_after), time.time()
    places = (folder / WORKERS).iterdir() if (folder / WORKERS).is_dir() else ()
    return sum(watcher.is_alive(p.name, now) for p in places if not p.name.startswith("."))


def _why(folder: Path, trial: PlannedTrial) -> str:
    known = failures(folder, trial.id)
    last = known[-1]["traceback"].strip().splitlines()[-1] if known else "no traceback"
    return f"{trial.id} ({trial.algorithm} on {trial.dataset}, test environments {list(trial.test_envs)}): {last}"


def _seconds_left(
    folder: Path, done: Sequence[PlannedTrial], open_: Sequence[PlannedTrial], workers: int
) -> float | None:
    """Mean seconds of finished trials of the same dataset and algorithm, else of all, for every open trial."""
    if not open_:
        return 0.0
    sums: dict[tuple[str, ...], tuple[float, int]] = {}
    for trial, seconds in timed_trials(folder, done):
        for key in ((trial.dataset, trial.algorithm), (trial.dataset,), ()):
            total, number = sums.get(key, (0.0, 0))
            sums[key] = (total + seconds, number + 1)
    if not sums:
        return None
    left = 0.0
    for trial in open_:
        keys = ((trial.dataset, trial.algorithm), (trial.dataset,), ())
        total, number = next(sums[key] for key in keys if key in sums)
        left += total / number
    return left / workers


def timed_trials(folder: Path, done: Sequence[PlannedTrial]) -> Iterator[tuple[PlannedTrial, float]]:
    """Seconds of finished trials, evenly spread over the plan."""
    for trial in done[:: max(1, len(done) // _MOST_READ)]:
        if (folder / trial.run / DONE).exists():
            try:
                found = read_done(folder / trial.run)
                yield trial, float(found["seconds"])
            except (FedhpcError, KeyError, TypeError):
                continue
