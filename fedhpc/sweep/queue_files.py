"""The files of a sweep's queue, and what they say about each trial.

The folder `queue` holds small files, and one listing of their names tells everything:

- `<trial>.<n>`: the n-th attempt at a trial has an owner; creating the file exclusively is the claim. It names the
  worker. A claim is never removed: who takes a trial over creates the next number, which only one can.
- `<trial>.<n>.failed`, `<trial>.<n>.released`: how the attempt ended (it raised; it was asked to stop, or
  what it had done is to be done again).
- `<trial>.done`: the trial's records are complete; `<trial>.diverged`: and its last loss is not finite.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedhpc.errors import FedhpcError
from fedhpc.sweep.workers import Watcher

QUEUE = "queue"
UNKNOWN = "?"
"""Owner of a young claim that names none yet."""
State = Literal["missing", "running", "abandoned", "failed", "done"]


@dataclass(frozen=True)
class QueueSettings:
    """How patient a queue is.

    Attributes:
        heartbeat: seconds between signs of life.
        stale_after: seconds without one after which a worker counts as dead.
        most_failures: attempts that may raise before a trial is given up; 2: one retry.
        most_deaths: workers that may die over a trial before it is given up: it may be what kills them.
    """

    heartbeat: float = 15.0
    stale_after: float = 120.0
    most_failures: int = 2
    most_deaths: int = 10


@dataclass
class History:
    """What the queue's file names say about one trial.

    Attributes:
        attempts: the number of the newest attempt; 0 for none.
        failed: numbers of the attempts that raised.
        released: numbers of the attempts that were given back.
        done: whether it is complete.
        diverged: whether its last loss was not finite.
    """

    attempts: int = 0
    failed: set[int] = field(default_factory=set)
    released: set[int] = field(default_factory=set)
    done: bool = False
    diverged: bool = False

    @property
    def is_open(self) -> bool:
        """Whether nobody is at it: the newest attempt, if there is one, has ended."""
        return self.attempts == 0 or self.attempts in self.failed or self.attempts in self.released

    @property
    def unended(self) -> list[int]:
        """Attempts that did not say how they ended; all but the newest are known to have died."""
        return [n for n in range(1, self.attempts + 1) if n not in self.failed and n not in self.released]

    def given_up(self, settings: QueueSettings) -> bool:
        """Whether it has failed for good."""
        return not self.done and len(self.failed) >= settings.most_failures


def read_histories(folder: Path) -> dict[str, History]:
    """One listing of a sweep's queue; trials without files are absent."""
    found: dict[str, History] = {}
    try:
        names = os.listdir(folder / QUEUE)
    except FileNotFoundError:
        return found
    for name in names:
        trial, _, rest = name.partition(".")
        number, _, end = rest.partition(".")
        history = found.setdefault(trial, History())
        if rest == "done":
            history.done = True
        elif rest == "diverged":
            history.diverged = True
        elif number.isdecimal():
            history.attempts = max(history.attempts, int(number))
            if end == "failed":
                history.failed.add(int(number))
            elif end == "released":
                history.released.add(int(number))
    return found


def owner_of(claim: Path, now: float, stale_after: float) -> str | None:
    """The worker that a claim names; None if it names none because its owner died before it could write.

    A young claim without a name is just being made; it counts as owned by `UNKNOWN`.
    """
    try:
        name = claim.read_text(encoding="utf-8").strip()
        return name or (UNKNOWN if now - claim.stat().st_mtime <= stale_after else None)
    except OSError:
        return None


@dataclass(frozen=True)
class Status:
    """How far a sweep is, in numbers of trials.

    Attributes:
        done: complete.
        running: with a worker that lives.
        abandoned: begun by a worker that died; the next worker takes them over.
        failed: given up.
        missing: not begun, or waiting to be gone on with.
    """

    done: int
    running: int
    abandoned: int
    failed: int
    missing: int


def states(folder: Path, trials: Iterable[str], settings: QueueSettings | None = None) -> dict[str, State]:
    """The state of every trial; writes nothing. Heartbeats are measured by this machine's clock."""
    settings = settings or QueueSettings()
    histories, now = read_histories(folder), time.time()
    watcher = Watcher(folder, settings.stale_after)
    alive: dict[str | None, bool] = {None: False, UNKNOWN: True}

    def state(trial: str) -> State:
        history = histories.get(trial, History())
        if history.done:
            return "done"
        if history.given_up(settings):
            return "failed"
        if history.is_open:
            return "missing"
        owner = owner_of(folder / QUEUE / f"{trial}.{history.attempts}", now, settings.stale_after)
        if owner not in alive:
            alive[owner] = watcher.is_alive(str(owner), now)
        return "running" if alive[owner] else "abandoned"

    return {trial: state(trial) for trial in trials}


def count(found: Mapping[str, State]) -> Status:
    """States as numbers."""
    values = list(found.values())
    return Status(*(values.count(state) for state in ("done", "running", "abandoned", "failed", "missing")))


def failures(folder: Path, trial: str) -> list[dict[str, Any]]:
    """What was recorded about a trial's failed attempts, oldest first: worker's facts and traceback."""
    found = []
    for attempt in sorted(read_histories(folder).get(trial, History()).failed):
        try:
            text = (folder / QUEUE / f"{trial}.{attempt}.failed").read_text(encoding="utf-8")
            found.append(json.loads(text))
        except (OSError, ValueError):
            continue
    return found


def reopen(folder: Path, incomplete: Callable[[str], bool], trials: Iterable[str]) -> int:
    """Let trials be run again that are marked as done but whose records someone removed; returns how many.

    Their last owner has ended with them, though it may live on with other trials: its claim is given back.

    Args:
        folder: the sweep's folder.
        incomplete: whether the records of a trial are not there.
        trials: ids.

    Raises:
        FedhpcError: the queue cannot be written.
    """
    histories = read_histories(folder)
    reopened = [t for t in trials if t in histories and histories[t].done and incomplete(t)]
    try:
        for trial in reopened:
            if not histories[trial].is_open:
                (folder / QUEUE / f"{trial}.{histories[trial].attempts}.released").touch()
            for end in ("done", "diverged"):
                (folder / QUEUE / f"{trial}.{end}").unlink(missing_ok=True)
    except OSError as error:
        raise FedhpcError(f"{folder / QUEUE}: cannot be written: {error.strerror}") from None
    return len(reopened)


def forgive(folder: Path, trials: Iterable[str]) -> int:
    """Let trials that failed be tried again; returns how many there were."""
    histories = read_histories(folder)
    forgiven = [t for t in trials if t in histories and histories[t].failed and not histories[t].done]
    try:
        for trial in forgiven:
            for attempt in histories[trial].failed:
                name = f"{trial}.{attempt}"
                os.replace(folder / QUEUE / f"{name}.failed", folder / QUEUE / f"{name}.released")
    except OSError as error:
        raise FedhpcError(f"{folder / QUEUE}: cannot be written: {error.strerror}") from None
    return len(forgiven)
