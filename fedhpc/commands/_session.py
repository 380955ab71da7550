"""A command of many ranks: it begins together, and if one rank fails the whole job ends with one message."""

from __future__ import annotations

import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from errno import EDQUOT, EIO, ENOSPC, EROFS, ESTALE
from pathlib import Path
from typing import TypeVar

from fedhpc.comm.checks import check_launch
from fedhpc.comm.launchers import started_by_launcher
from fedhpc.comm.liveness import Patience, bounded_start
from fedhpc.comm.process import StopRequest, die_with_parent, keep_freed_memory, tell_crashes
from fedhpc.comm.world import World, open_world
from fedhpc.errors import DONE, FAILED, AgreedError, FedhpcError
from fedhpc.timing import doing_of

T = TypeVar("T")

_ABORT_SECONDS = 10.0
_REMEDIES = {
    ENOSPC: "free some space",
    EDQUOT: "free some space or have the quota raised",
    EROFS: "have the file system made writable again",
    EIO: "have the file system looked at",
    ESTALE: "have the file system looked at",
}
"""What to do about a disk, by the number of the system's error, before the same run can go on."""


def disk_problem(error: OSError, place: Path | None = None) -> str:
    """What went wrong where, and what to do; `place` is for calls about which the system names no file (a write)."""
    where = error.filename or place or "see the traceback for the file"
    remedy = _REMEDIES.get(error.errno or 0, "have that mended")
    return f"{error.strerror}: {where}; {remedy} and run again with --resume"


def say(text: str) -> None:
    """Print a line; a reader that has left (`fedhpc run CONFIG | head`) ends no training: the rest goes nowhere."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Session:
    """What every rank of a job has.

    Attributes:
        world: the ranks.
        stop: set when someone asked for a checkpoint and a stop.
        log_folder: where a failing rank writes its traceback; None until there is a run directory.
    """

    def __init__(self, world: World, stop: StopRequest, debug: bool) -> None:
        self.world = world
        self.stop = stop
        self.debug = debug
        self.log_folder: Path | None = None

    def say(self, text: str) -> None:
        """Print on root."""
        if self.world.is_root:
            say(text)

    def warn(self, text: str) -> None:
        """Print a warning on root, once per call."""
        if self.world.is_root:
            print(f"fedhpc: warning: {text}", file=sys.stderr, flush=True)

    def together(self, work: Callable[[], T]) -> T:
        """Do work that may show a mistake of the user's on any rank; collective.

        Raises:
            AgreedError: the first rank's problem, on every rank, so that it is said once and nothing is aborted.
        """
        problem: FedhpcError | None = None
        try:
            result = work()
        except FedhpcError as error:
            problem = error
        self.world.agree(problem)
        return result

    def log(self, text: str) -> Path | None:
        """Append to this rank's own log file; returns it, or None where it cannot be written."""
        if self.log_folder is None:
            return None
        path = self.log_folder / f"rank-{self.world.rank:05d}.log"
        try:
            with path.open("a", encoding="utf-8") as handle:
                handle.write(text.rstrip() + "\n")
        except OSError:
            return None
        return path

    def patience(self, what: str) -> Patience:
        """Gives waiting for other ranks an end while the job starts."""
        name = f"rank {self.world.rank} on {self.world.host}, {what}"
        return Patience(name, lambda: self.world.inside, self.end_hung)

    def end_hung(self, message: str) -> None:
        """End the job from a helper thread, whatever the main thread waits for."""
        print(f"fedhpc: error: {message}", file=sys.stderr, flush=True)
        self.log(message)
        last = threading.Timer(_ABORT_SECONDS, os._exit, (FAILED,))  # where MPI itself hangs
        last.daemon = True
        last.start()
        self.world.abort(FAILED)


def _leave(world: World, code: int) -> int:
    """Return the exit code, or leave at once where ranks were lost: MPI's own end would wait for them."""
    if world.lost:
        if world.is_root and code == DONE:
            print("fedhpc: all is done; should mpirun wait for a host that is gone, it may be killed", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _end_start(message: str) -> None:
    """End a process whose MPI does not come up."""
    print(f"fedhpc: error: {socket.gethostname()}, {message}", file=sys.stderr, flush=True)
    os._exit(FAILED)


def in_session(body: Callable[[Session], int], debug: bool, checked: bool = True) -> int:
    """Open the world, run the body on every rank and return its exit code.

    Ranks that should not run together (other versions, other settings) are refused first, unless `checked` is false.

    An `AgreedError` ends all ranks in order, root prints it. Any other exception on one rank ends the whole job at
    once with a message that names rank, host and what it was doing.
    """
    if started_by_launcher():
        die_with_parent()
    stop = StopRequest().listen()
    keep_freed_memory()
    with bounded_start(), Patience("the start of MPI", lambda: "MPI_Init", _end_start):
        world = open_world()
    tell_crashes()
    session = Session(world, stop, debug)
    try:
        if checked:
            with session.patience("the launch checks"):
                check_launch(world, session.warn)
        code = body(session)
        world.close()
        return _leave(world, code)
    except AgreedError as error:
        if world.is_root:
            print(f"fedhpc: error: {error}", file=sys.stderr, flush=True)
        return _leave(world, error.exit_code)
    except BaseException as error:
        code = error.exit_code if isinstance(error, FedhpcError) else FAILED
        _report(session, error)
        if world.size > 1:
            world.abort(code)
        return code


def _report(session: Session, error: BaseException) -> None:
    """One or two lines for people, the traceback for the log; a mistake told to a single process has none."""
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    unforeseen = session.world.size > 1 or not isinstance(error, FedhpcError)
    path = session.log(trace) if unforeseen else None
    what = str(error) if isinstance(error, FedhpcError) else f"{type(error).__name__}: {error}"
    cause = error.__cause__
    if isinstance(error, OSError) and error.errno in _REMEDIES:
        what = disk_problem(error)
    elif isinstance(cause, OSError) and cause.errno in _REMEDIES and "--resume" not in what:
        what += f"; {_REMEDIES[cause.errno]} and run again with --resume"
    if unforeseen:
        doing = doing_of(error)
        where = f"rank {session.world.rank} on {socket.gethostname()}"
        what = f"{where} failed{f' during {doing}' if doing else ''}: {what}"
    lines = [f"fedhpc: error: {what}"]
    if session.debug:
        lines.append(trace.rstrip())
    elif path:
        lines.append(f"fedhpc: traceback in {path}")
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stderr.flush()
