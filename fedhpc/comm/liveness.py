"""Notices ranks that hang: alive or not, they keep all others waiting for ever.

Each rank has a helper thread that writes a sign of life (what it does, since when) into its own place in one small file
of the run directory. Threads of ranks that wait in a collective for longer than the limit read the file, name the rank
that does not come and end the job. Neither MPI nor sockets are used, since both may be what hangs.
"""

from __future__ import annotations

import faulthandler
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedhpc.comm.world import World
    from fedhpc.timing import Stopwatch

_RECORD = 192
"""Bytes per rank."""
START_SECONDS = "FEDHPC_START_SECONDS"
"""Variable with the seconds that a rank waits for others while the job starts."""
_START_SECONDS = 600.0
_WATCHERS = 2
"""Ranks of each node that read the file while they wait: two, so that one of them may hang."""


@dataclass(frozen=True)
class Sign:
    """What a rank last wrote.

    Attributes:
        beats: how often it has written.
        held: seconds without any progress when it wrote.
        inside: the collective in which it waits for others; empty if it does not.
        doing: its phase.
    """

    beats: int
    held: float
    inside: str
    host: str
    doing: str

    def pack(self) -> bytes:
        """The record, of fixed length."""
        text = "\t".join((str(self.beats), f"{self.held:.1f}", self.inside, self.host[:60], self.doing))
        return text.encode()[: _RECORD - 1].ljust(_RECORD - 1) + b"\n"

    @classmethod
    def unpack(cls, record: bytes) -> Sign | None:
        """Read a record; None if nothing was written there."""
        parts = record.decode(errors="replace").rstrip(" \n\0").split("\t")
        if len(parts) != 5 or not parts[0].isdigit():
            return None
        return cls(int(parts[0]), float(parts[1]), *parts[2:])


def accuse(signs: dict[int, Sign], silent: dict[int, float], limit: float) -> str | None:
    """Say who keeps the others waiting, or None while somebody still makes progress.

    Args:
        signs: the last sign of each rank.
        silent: seconds since a rank wrote anything, for those that should have.
        limit: seconds without progress that count as hanging.
    """
    lost = [r for r, seconds in sorted(silent.items()) if seconds > limit]
    stuck = [r for r, s in sorted(signs.items()) if r not in lost and not s.inside and s.held > limit]
    if lost or stuck:
        rank = (lost or stuck)[0]
        sign = signs[rank]
        seconds = silent[rank] if lost else sign.held
        where = f"in {sign.inside}, " if sign.inside else ""
        doing = f"{where}{sign.doing or 'between phases'}"
        what = "gives no sign of life" if lost else "makes no progress"
        others = len(lost) + len(stuck) - 1
        more = f" ({others} other rank(s) hang as well)" if others else ""
        return f"rank {rank} on {sign.host} {what} since {seconds:.0f} s; last known phase: {doing}{more}"
    if signs and all(s.inside and s.held > limit for s in signs.values()):
        first = signs[min(signs)]
        return f"all ranks wait for each other in MPI since {first.held:.0f} s ({first.inside}, {first.doing})"
    return None


class Patience:
    """Context manager for the start, when nobody knows yet who is there: waiting for others has an end.

    Args:
        what: what is being done, for the message.
        waiting: the collective that this rank is in, empty if it does something itself.
        end: takes the message and ends the job; called in a helper thread.
    """

    def __init__(self, what: str, waiting: Callable[[], str], end: Callable[[str], None]) -> None:
        self._what, self._waiting, self._end = what, waiting, end
        self._limit = float(os.environ.get(START_SECONDS, _START_SECONDS))
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fedhpc-patience", daemon=True)

    def __enter__(self) -> Patience:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()

    def _watch(self) -> None:
        while not self._done.wait(self._limit):
            if inside := self._waiting():
                self._end(f"{self._what}: waits since {self._limit:g} s in {inside} for ranks that do not come")
                return


@contextmanager
def bounded_start() -> Iterator[None]:
    """End this process if the library's own start does not return: mpi4py holds the interpreter's lock in it.

    No thread of Python can run meanwhile, so a `Patience` cannot either; faulthandler's timer is not Python. It writes
    where the process stands to standard error and exits with 1, upon which the launcher ends the other ranks.
    """
    limit = float(os.environ.get(START_SECONDS, _START_SECONDS))
    # not sys.stderr: a notebook's or a test's replacement of it is no file that a timer could write to
    faulthandler.dump_traceback_later(limit, exit=True, file=sys.__stderr__ or 2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


class Watch:
    """Context manager: signs of life of this rank, and an eye on the others while it waits for them.

    Args:
        world: the ranks.
        folder: where the file of signs goes, named by this job; seen by all nodes, used by no other job at the time.
        clock: knows the phases of this rank.
        limit: seconds without progress that count as hanging; 0 for no watch.
        end: takes the message and ends the job; called in the helper thread, on one rank.
        log: this rank's log file, which gets its stack if it hangs.
    """

    def __init__(
        self, world: World, folder: Path, clock: Stopwatch, limit: float, end: Callable[[str], None], log: Path | None
    ) -> None:
        self._world, self._clock, self._limit, self._end, self._log = world, clock, limit, end, log
        self._folder = folder
        self._period = min(max(limit / 8, 0.1), 60.0)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fedhpc-watch", daemon=True)
        self._beats = 0
        self._seen: dict[int, tuple[int, float]] = {}

    def __enter__(self) -> Watch:
        """Collective."""
        if self._limit > 0 and self._world.size > 1:
            with Patience("the start of the watch", lambda: self._world.inside, self._end):  # no signs to go by yet
                self._file = self._new_file()
            self._write(0.0, self._world.inside)
            self._thread.start()
        return self

    def _new_file(self) -> Path:
        """A rank of a former job may live on behind a cut: it must not take this job's signs for those of its own."""
        if self._world.is_root:
            for old in self._folder.glob("signs*"):
                if old.is_file():
                    old.unlink(missing_ok=True)
        return self._folder / f"signs-{self._world.share(secrets.token_hex(4))}"

    def __exit__(self, *error: object) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _watch(self) -> None:
        world, clock = self._world, self._clock
        ticks, since, told = (-1, -1), time.monotonic(), False
        while not self._done.wait(self._period):
            now = time.monotonic()
            if (world.ticks, clock.ticks) != ticks:
                ticks, since, told = (world.ticks, clock.ticks), now, False
                self._seen.clear()
            held, inside = now - since, world.inside
            self._write(held, inside)
            if not inside and held > self._limit and not told:
                told = True
                self._write_stack()
            if inside and world.local_rank < _WATCHERS:
                self._judge(held, now)

    def _write(self, held: float, inside: str) -> None:
        """Opened anew each time: network file systems then send it to the server."""
        self._beats += 1
        sign = Sign(self._beats, held, inside, self._world.host, (self._clock.current or [""])[-1])
        try:
            handle = os.open(self._file, os.O_WRONLY | os.O_CREAT, 0o644)
        except OSError:
            return
        try:
            os.pwrite(handle, sign.pack(), self._world.rank * _RECORD)
        except OSError:
            pass
        finally:
            os.close(handle)

    def _judge(self, held: float, now: float) -> None:
        signs = self._read()
        for rank, sign in signs.items():  # beats, not clocks, since those of two nodes may differ
            if self._seen.get(rank, (-1, 0.0))[0] != sign.beats:
                self._seen[rank] = (sign.beats, now)
        if held <= self._limit:
            return
        silent = {rank: now - self._seen[rank][1] for rank in signs}
        message = accuse(signs, silent, self._limit)
        if message is None:
            return
        reporters = [r for r, s in signs.items() if s.inside and silent[r] <= self._limit]
        if self._world.rank == min(reporters, default=self._world.rank) or held > 1.5 * self._limit + 10:
            self._end(f"{message}; the job ends (limit: hang_seconds {self._limit:g}), go on with --resume")

    def _read(self) -> dict[int, Sign]:
        """The sign of every rank."""
        try:
            raw = self._file.read_bytes()
        except OSError:
            return {}
        records = (raw[r * _RECORD : (r + 1) * _RECORD] for r in range(self._world.size))
        nothing = Sign(0, 0.0, "", "a host not known yet", "before the first sign")
        return {rank: Sign.unpack(record) or nothing for rank, record in enumerate(records)}

    def _write_stack(self) -> None:
        if self._log is None:
            return
        try:
            with self._log.open("a", encoding="utf-8") as handle:
                handle.write(f"no progress since {self._limit:g} s; the stacks of this rank:\n")
                handle.flush()
                faulthandler.dump_traceback(handle)
        except OSError:
            pass
