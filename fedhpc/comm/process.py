"""What a process needs to be before it computes: its allocator, its parent, its reaction to signals."""

from __future__ import annotations

import array
import ctypes
import faulthandler
import fcntl
import os
import signal
import stat
import sys
import termios
import time
from contextlib import suppress
from types import FrameType
from typing import TextIO

_PR_SET_PDEATHSIG = 1
_MOST_WAIT, _PASS_ON = 2.0, 0.5
"""Seconds that an abort waits for the launcher to read, and then to pass on, what was printed."""
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed blocks instead of returning them to the kernel.

    A training step frees and allocates the same tensors again; without this each of them page-faults anew
    (measured: steps of a small CNN take 1.35 times as long). Returns whether it was possible.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = ((_M_MMAP_THRESHOLD, 2**30), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, 2**28))
    return all(mallopt(ctypes.c_int(key), ctypes.c_int(value)) == 1 for key, value in settings)


def tell_crashes() -> None:
    """Have a crash print where this process stood: a page of a mapped shard that cannot be read is a SIGBUS.

    To be called after MPI's start, which warns of handlers that are there before its own; those are called as well.
    """
    if not faulthandler.is_enabled():
        faulthandler.enable(file=sys.__stderr__ or 2, all_threads=False)


def die_with_parent() -> None:
    """Ask Linux to kill this process when the launcher that started it dies, however it dies."""
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the request was in place
        os.kill(os.getpid(), signal.SIGKILL)


def let_through(*streams: TextIO) -> None:
    """Flush, and wait until whoever reads our pipes has taken what is in them, and a moment longer.

    A launcher that is told to abort drops what it has not read or not passed on yet: the message that says why.
    """
    end = time.monotonic() + _MOST_WAIT
    for stream in streams:
        with suppress(OSError, ValueError):  # closed, or nobody reads any more
            stream.flush()
            while time.monotonic() < end and _unread(stream.fileno()):
                time.sleep(0.02)
    time.sleep(_PASS_ON)


def _unread(descriptor: int) -> int:
    """Bytes in a pipe that its reader has not taken; 0 for anything that is no pipe."""
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return 0
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


class StopRequest:
    """Remembers that someone asked for a checkpoint and a stop (USR1, TERM or INT); handlers only set a flag."""

    def __init__(self) -> None:
        self.name: str | None = None

    def __bool__(self) -> bool:
        return self.name is not None

    def ask(self, why: str) -> None:
        """Ask for it from inside the program."""
        self.name = self.name or why

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name
        if number == signal.SIGINT:  # a second Ctrl-C means it
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def listen(self) -> StopRequest:
        """Install the handlers (main thread only) and return self."""
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._remember)
        return self
