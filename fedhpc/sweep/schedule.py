"""Who runs which trial: claims by exclusive file creation, so that any number of ranks and jobs share one sweep.

What the files mean is said in `queue_files`. Nothing here knows what a trial is.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from errno import EDQUOT, EIO, ENOSPC, EROFS
from pathlib import Path
from typing import Any, Literal

from fedhpc.errors import FedhpcError
from fedhpc.sweep.queue_files import QUEUE, UNKNOWN, History, QueueSettings, owner_of, read_histories
from fedhpc.sweep.workers import WORKERS, Watcher, Worker

Ending = Literal["done", "stopped", "lost"]

_LISTING_SHARE = 10
"""A look at the whole queue is followed by at least this many times its duration without one."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
"""Seconds between looks of a worker that finds nothing to do, doubling from the first to the longest."""
_DISK_TROUBLE = (ENOSPC, EDQUOT, EROFS, EIO)


@dataclass(frozen=True)
class Claim:
    """One attempt at a trial that belongs to this worker.

    Attributes:
        trial: the trial's id.
        attempt: its number, from 1.
        queue: the queue's folder.
    """

    trial: str
    attempt: int
    queue: Path

    @property
    def is_lost(self) -> bool:
        """Whether another worker took the trial over, thinking this one dead: stop, and leave the rest to it."""
        return (self.queue / f"{self.trial}.{self.attempt + 1}").exists()


class Queue:
    """A worker's view of a sweep's queue. Use it as a context manager: the heartbeat beats inside.

    Args:
        folder: the sweep's folder.
        trials: ids in the order in which they should be begun, longest first.
        offset: how many open trials to pass over at the first claim: a rank's number, so that all begin elsewhere.
        settings: how patient to be.
        label: further facts about this worker (rank, ...).
        hang_seconds: without a step for so long this worker gives up its claim to its trial (see `Worker`).
    """

    def __init__(
        self,
        folder: Path,
        trials: Sequence[str],
        offset: int = 0,
        settings: QueueSettings | None = None,
        label: Mapping[str, Any] | None = None,
        hang_seconds: float = 0.0,
    ) -> None:
        self._root, self._folder = folder, folder / QUEUE
        self._trials = list(dict.fromkeys(trials))
        self._offset = offset
        self.settings = settings or QueueSettings()
        self.worker = Worker(folder, self.settings.heartbeat, label or {}, hang_seconds)
        self._watcher = Watcher(folder, self.settings.stale_after)
        self._histories: dict[str, History] = {}
        self._owners: dict[str, str] = {}
        self._pending: dict[str, None] = {}
        self._ahead: list[str] = []
        self._own_failures: set[str] = set()
        self._next_look = -float("inf")

    def __enter__(self) -> Queue:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self.worker.start()
        except OSError as error:
            raise FedhpcError(f"{self._folder}: cannot be written: {error.strerror}") from None
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.stop()

    @property
    def settled(self) -> bool:
        """Whether, as far as is known, every trial is done or given up."""
        return self._next_look > 0 and not self._pending

    def claim(self) -> Claim | None:
        """Claim a trial that nobody has; None if there is none at present (or it is too early to look again).

        Trials that nobody is at come first, then abandoned ones, then those that only this worker failed at, if no
        other worker is left to try them.
        """
        claim = self._claim_ahead()
        if claim is None and time.monotonic() >= self._next_look:
            begun = time.monotonic()
            self._look()
            claim = self._claim_ahead() or self._claim_abandoned() or self._claim_own_failure()
            now = time.monotonic()
            self._next_look = now + _LISTING_SHARE * (now - begun)
        return claim

    def _look(self) -> None:
        """Read the queue's state anew: one listing."""
        self._histories = read_histories(self._root)
        self._pending = dict.fromkeys(t for t in self._trials if self._is_pending(t))
        open_ = [t for t in self._pending if self._history(t).is_open and t not in self._own_failures]
        skipped = self._offset % len(open_) if open_ else 0
        self._ahead = open_[skipped:]
        self._offset = 0

    def _history(self, trial: str) -> History:
        return self._histories.setdefault(trial, History())

    def _is_pending(self, trial: str) -> bool:
        history = self._histories.get(trial)
        return history is None or not (history.done or history.given_up(self.settings))

    def _claim_ahead(self) -> Claim | None:
        """Go through the open trials; after each lost race, past twice as many.

        Others claim in the same order: a few tries find the frontier, and the next look what was passed over.
        """
        place, stride = 0, 1
        while place < len(self._ahead):
            trial = self._ahead[place]
            claim = self._create(trial, self._history(trial).attempts + 1)
            if claim is not None:
                del self._ahead[: place + 1]
                return claim
            place, stride = place + stride, 2 * stride
        self._ahead.clear()
        return None

    def _create(self, trial: str, attempt: int) -> Claim | None:
        """Create the file that is the claim; who comes second finds that it exists."""
        history = self._history(trial)
        history.attempts = max(history.attempts, attempt)
        try:
            handle = os.open(self._folder / f"{trial}.{attempt}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return None
        try:
            os.write(handle, self.worker.name.encode())
        finally:
            os.close(handle)
        return Claim(trial, attempt, self._folder)

    def _claim_abandoned(self) -> Claim | None:
        now = self.worker.now()
        alive: dict[str | None, bool] = {None: False, UNKNOWN: True}
        for trial in list(self._pending):
            history = self._history(trial)
            if history.is_open:
                continue
            owner = self._owner(f"{trial}.{history.attempts}", now)
            if owner not in alive:
                alive[owner] = self._watcher.is_alive(str(owner), now)
            if not alive[owner] and (claim := self._take_over(trial, history)) is not None:
                return claim
        return None

    def _owner(self, claim: str, now: float) -> str | None:
        """Who made a claim; the file is opened once, since what it says does not change."""
        if claim in self._owners:
            return self._owners[claim]
        owner = owner_of(self._folder / claim, now, self.settings.stale_after)
        if owner is not None and owner != UNKNOWN:
            self._owners[claim] = owner
        return owner

    def _take_over(self, trial: str, history: History) -> Claim | None:
        ends = ("done", f"{history.attempts}.failed", f"{history.attempts}.released")
        if any((self._folder / f"{trial}.{end}").exists() for end in ends):
            return None  # it ended, and its worker left, after we looked
        if len(history.unended) >= self.settings.most_deaths:
            for attempt in history.unended:
                self._mark(f"{trial}.{attempt}.failed", {"traceback": "the worker died without a word"})
            return None
        return self._create(trial, history.attempts + 1)

    def _claim_own_failure(self) -> Claim | None:
        mine = [t for t in self._pending if t in self._own_failures and self._history(t).is_open]
        if not mine or self._watcher.anyone_but(self.worker.name, self.worker.now()):
            return None
        self._own_failures.difference_update(mine)
        self._ahead = mine
        return self._claim_ahead()

    def done(self, claim: Claim) -> None:
        """Record that a trial is complete; its records are on disk."""
        self._mark(f"{claim.trial}.done", {"worker": self.worker.name})
        self._history(claim.trial).done = True
        self._pending.pop(claim.trial, None)

    def diverged(self, claim: Claim) -> None:
        """Record that a trial ended without a finite loss; it counts as complete."""
        self._mark(f"{claim.trial}.diverged", {"worker": self.worker.name})

    def failed(self, claim: Claim, trace: str) -> None:
        """Record that an attempt raised."""
        self._mark(f"{claim.trial}.{claim.attempt}.failed", {**self.worker.facts, "traceback": trace})
        self._history(claim.trial).failed.add(claim.attempt)
        if self._is_pending(claim.trial):
            self._own_failures.add(claim.trial)
        else:
            self._pending.pop(claim.trial, None)

    def released(self, claim: Claim) -> None:
        """Give a trial back: anybody may go on with it at once."""
        self._mark(f"{claim.trial}.{claim.attempt}.released", {"worker": self.worker.name})
        self._history(claim.trial).released.add(claim.attempt)

    def _mark(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a small file, whole or not at all."""
        temporary = self._root / WORKERS / f".{self.worker.name}.tmp"
        try:
            temporary.write_text(json.dumps(content) + "\n", encoding="utf-8")
            os.replace(temporary, self._folder / name)
        except OSError as error:
            raise FedhpcError(f"{self._folder / name}: cannot be written: {error.strerror}") from error


def work(
    queue: Queue,
    attempt: Callable[[Claim], Ending],
    stop: Callable[[], bool] = lambda: False,
    on_failure: Callable[[Claim, str], None] = lambda claim, trace: None,
) -> bool:
    """Claim and run trials until all are settled, wherever they run; returns whether that was reached.

    A trial that raises is recorded with its traceback; the others go on. A disk that cannot be written ends the work:
    every trial would fail on it.

    Args:
        queue: an entered queue.
        attempt: runs one trial and says how it ended: `lost` if another worker took it over.
        stop: whether to give up early.
        on_failure: told of every attempt that raised.
    """
    pause = _FIRST_PAUSE
    while not stop():
        claim = queue.claim()
        if claim is not None:
            pause = _FIRST_PAUSE
            _attempt(queue, claim, attempt, on_failure)
        elif queue.settled:
            return True
        else:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
    return False


def _attempt(
    queue: Queue, claim: Claim, attempt: Callable[[Claim], Ending], on_failure: Callable[[Claim, str], None]
) -> None:
    try:
        ending = attempt(claim)
    except Exception as error:
        if claim.is_lost:
            return
        if _is_disk_trouble(error):
            queue.released(claim)
            raise
        trace = "".join(traceback.format_exception(error))
        queue.failed(claim, trace)
        on_failure(claim, trace)
        return
    except BaseException:  # the process is asked to end
        queue.released(claim)
        raise
    if ending == "done":
        queue.done(claim)
    elif ending == "stopped":
        queue.released(claim)


def _is_disk_trouble(error: BaseException | None) -> bool:
    """Whether an error, or what it came from, says that files cannot be written here any more."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _DISK_TROUBLE:
            return True
        error = error.__cause__
    return False
