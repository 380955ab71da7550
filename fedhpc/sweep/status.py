"""How far a sweep is, from its files alone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedhpc.errors import FedhpcError
from fedhpc.report.results import PlannedTrial
from fedhpc.report.trial_files import DONE, read_done, read_plan
from fedhpc.sweep.estimate import duration
from fedhpc.sweep.queue_files import QueueSettings, count, failures, read_histories, states
from fedhpc.sweep.workers import Watcher

_MOST_READ = 400
"""Finished trials that are read to learn how long trials take."""
_MOST_SHOWN = 10


@dataclass(frozen=True)
class RunningTrial:
    """A trial that a living worker is at, as the worker last told.

    Attributes:
        id, dataset, algorithm, test_envs, hparams_seed, trial_seed: see `TrialSpec`.
        step: updates done, of `steps`.
        seconds: that they took.
        host: the worker's.
    """

    id: str
    dataset: str
    algorithm: str
    test_envs: tuple[int, ...]
    hparams_seed: int
    trial_seed: int
    step: int
    steps: int
    seconds: float
    host: str

    @property
    def share(self) -> float:
        """Of the trial that is done."""
        return min(self.step / self.steps, 1.0) if self.steps else 0.0


@dataclass(frozen=True)
class SweepStatus:
    """How far a sweep is.

    Attributes:
        done, running, failed, missing: trials; what a dead worker left counts as missing.
        abandoned: how many of the missing ones a dead worker left.
        diverged: how many of those that are done ended without a finite loss.
        workers: that live.
        seconds_left: until all is done with these workers, or with one; None before anything is known.
        seconds_left_by_dataset: the same, one dataset after the other.
        running_trials: what living workers are at.
        why_failed: one line for each of the first failed trials.
    """

    done: int
    running: int
    failed: int
    missing: int
    abandoned: int
    diverged: int
    workers: int
    seconds_left: float | None
    seconds_left_by_dataset: Mapping[str, float | None] = field(default_factory=dict)
    running_trials: tuple[RunningTrial, ...] = ()
    why_failed: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            **vars(self),
            "seconds_left_by_dataset": dict(self.seconds_left_by_dataset),
            "running_trials": [vars(trial) for trial in self.running_trials],
            "why_failed": list(self.why_failed),
        }

    def text(self) -> str:
        """For a person."""
        left = ""
        if self.running or self.missing:
            left = f"; {_left(self.seconds_left)} with {max(self.workers, 1)} worker{'s' if self.workers > 1 else ''}"
        lines = [f"{self.done} done, {self.running} running, {self.failed} failed, {self.missing} missing{left}"]
        if left and len(self.seconds_left_by_dataset) > 1:
            lines.append("  " + ", ".join(f"{d}: {_left(s)}" for d, s in self.seconds_left_by_dataset.items()))
        for t in self.running_trials[:_MOST_SHOWN]:
            what = f"{t.algorithm} on {t.dataset}, test environments {list(t.test_envs)}"
            lines.append(f"  {t.id} ({what}): step {t.step:,} of {t.steps:,} on {t.host}")
        if self.diverged:
            lines.append(f"  {self.diverged} of the trials that are done diverged (their last loss is not finite)")
        return "\n".join([*lines, *(f"  {why}" for why in self.why_failed)])


def _left(seconds: float | None) -> str:
    return "time left not known yet" if seconds is None else f"{duration(seconds)} left"


def sweep_status(folder: Path, settings: QueueSettings | None = None) -> SweepStatus:
    """Read a sweep's state; writes nothing.

    Raises:
        FedhpcError: the folder holds no sweep.
    """
    settings = settings or QueueSettings()
    planned = read_plan(folder).planned
    found = states(folder, [t.id for t in planned], settings)
    histories = read_histories(folder)
    numbers = count(found)
    by_state = {state: [t for t in planned if found[t.id] == state] for state in ("done", "failed", "running")}
    workers = Watcher(folder, settings.stale_after).living(time.time())
    running = tuple(_running(by_state["running"], workers))
    closed = ("done", "failed")
    by_dataset = _seconds_left(
        folder, by_state["done"], [t for t in planned if found[t.id] not in closed], running, max(len(workers), 1)
    )
    known = [seconds for seconds in by_dataset.values() if seconds is not None]
    return SweepStatus(
        done=numbers.done,
        running=numbers.running,
        failed=numbers.failed,
        missing=numbers.missing + numbers.abandoned,
        abandoned=numbers.abandoned,
        diverged=sum(t.id in histories and histories[t.id].diverged for t in by_state["done"]),
        workers=len(workers),
        seconds_left=sum(known) if len(known) == len(by_dataset) else None,
        seconds_left_by_dataset=by_dataset,
        running_trials=running,
        why_failed=tuple(_why(folder, t) for t in by_state["failed"][:_MOST_SHOWN]),
    )


def _running(planned: Iterable[PlannedTrial], workers: Iterable[Mapping[str, Any]]) -> Iterator[RunningTrial]:
    at = {str(worker["trial"]): worker for worker in workers if "trial" in worker}
    for t in planned:
        if (worker := at.get(t.id)) is not None:
            axes = (t.id, t.dataset, t.algorithm, t.test_envs, t.hparams_seed, t.trial_seed)
            yield RunningTrial(*axes, worker["step"], worker["steps"], worker["seconds"], str(worker.get("host")))


def _why(folder: Path, trial: PlannedTrial) -> str:
    known = failures(folder, trial.id)
    last = known[-1]["traceback"].strip().splitlines()[-1] if known else "no traceback"
    return f"{trial.id} ({trial.algorithm} on {trial.dataset}, test environments {list(trial.test_envs)}): {last}"


def _seconds_left(
    folder: Path,
    done: Sequence[PlannedTrial],
    open_: Sequence[PlannedTrial],
    running: Sequence[RunningTrial],
    workers: int,
) -> dict[str, float | None]:
    """By dataset. Every open trial takes the mean of finished ones of its dataset and algorithm, else of its dataset,
    else of all; where none has finished, those that run tell how long they will take.
    """
    sums: dict[tuple[str, ...], tuple[float, int]] = {}
    timed = [(t.dataset, t.algorithm, seconds) for t, seconds in timed_trials(folder, done)]
    timed = timed or [(t.dataset, t.algorithm, t.seconds / t.share) for t in running if t.step]
    for dataset, algorithm, seconds in timed:
        for key in ((dataset, algorithm), (dataset,), ()):
            total, number = sums.get(key, (0.0, 0))
            sums[key] = (total + seconds, number + 1)
    shares = {t.id: t.share for t in running}
    left: dict[str, float | None] = dict.fromkeys(t.dataset for t in open_) if not sums else {}
    for trial in open_ if sums else ():
        keys = ((trial.dataset, trial.algorithm), (trial.dataset,), ())
        total, number = next(sums[key] for key in keys if key in sums)
        rest = total / number * (1 - shares.get(trial.id, 0.0)) / workers
        left[trial.dataset] = (left.get(trial.dataset) or 0.0) + rest
    return left


def timed_trials(folder: Path, done: Sequence[PlannedTrial]) -> Iterator[tuple[PlannedTrial, float]]:
    """Seconds of finished trials, evenly spread over the plan."""
    for trial in done[:: max(1, len(done) // _MOST_READ)]:
        if (folder / trial.run / DONE).exists():
            try:
                found = read_done(folder / trial.run)
                yield trial, float(found["seconds"])
            except (FedhpcError, KeyError, TypeError):
                continue
