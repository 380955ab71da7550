"""Makes a vanished host show within seconds: time limits on this process's TCP connections to other hosts.

A host that loses its power or its link says nothing. MPI libraries set no keepalive, so who only waits for it waits for
ever, and who has sent something waits until the kernel gives up, which takes a quarter of an hour unless the system is
tuned (`net.ipv4.tcp_retries2`). Keepalive, which needs no privilege, serves those who wait. It is silent while data are
on their way, and the kernel's own limit for that case (TCP_USER_TIMEOUT) also ends connections to a process that lives
but does not read; so the guard asks the kernel when it last heard from the other side. A kernel answers for a process
that computes or hangs: only a silent host or network counts as lost.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
import threading
import time
from dataclasses import dataclass

SILENCE_SECONDS = 10.0
"""How long a host may say nothing before connections to it are given up."""

_SWEEP_SECONDS = 1.0
_PROBES = 3
_KEEPALIVE = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
_DESCRIPTORS = "/proc/self/fd"
_INFO = struct.Struct("=3xB4x" + "13I")
"""Start of Linux's `struct tcp_info`: byte 3 counts unanswered probes, word 4 unacknowledged segments, word 12 is the
milliseconds since the last acknowledgement."""


@dataclass
class _Watched:
    """A connection to another host: whether something sent waits for an answer, and since when."""

    waits_since: float | None = None


class SocketGuard:
    """Limits connections as they appear: libraries connect when a pair of ranks first talks.

    Args:
        seconds: of silence.
        loopback: whether connections within this host count, for tests.
    """

    def __init__(self, seconds: float = SILENCE_SECONDS, loopback: bool = False) -> None:
        self._seconds, self._loopback = seconds, loopback
        self._known: dict[tuple[int, int], _Watched | None] = {}
        self._stopped = threading.Event()

    def start(self) -> SocketGuard:
        """Sweep from a thread of its own, also while the main thread waits in a collective; Linux only."""
        if sys.platform.startswith("linux") and os.path.isdir(_DESCRIPTORS):
            threading.Thread(target=self._run, name="socket guard", daemon=True).start()
        return self

    def stop(self) -> None:
        """Sweep no more."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(_SWEEP_SECONDS):
            self.sweep()

    def sweep(self) -> int:
        """Limit new connections and end silent ones; returns how many are new since the last sweep."""
        known: dict[tuple[int, int], _Watched | None] = {}
        limited = 0
        for name in os.listdir(_DESCRIPTORS):
            try:
                found = os.fstat(int(name))
                key = (int(name), found.st_ino)
                if key in self._known:
                    watched = self._known[key]
                else:
                    watched = self._limit(int(name)) if stat.S_ISSOCK(found.st_mode) else None
                    limited += watched is not None
                if watched is not None:
                    self._check(int(name), watched)
                known[key] = watched
            except OSError:  # closed meanwhile, listens, or is not connected yet: looked at again
                continue
        self._known = known
        return limited

    def _limit(self, descriptor: int) -> _Watched | None:
        """Set keepalive through a copy of the descriptor, so that the library's own stays untouched and open."""
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            if copy.family not in (socket.AF_INET, socket.AF_INET6) or copy.type != socket.SOCK_STREAM:
                return None
            peer = copy.getpeername()[0]
            if not self._loopback and (peer.startswith("127.") or peer in ("::1", "::ffff:127.0.0.1")):
                return None
            pause = max(1, int(self._seconds / _PROBES))
            copy.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in zip(_KEEPALIVE, (pause, pause, _PROBES), strict=True):
                copy.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
            return _Watched()

    def _check(self, descriptor: int, watched: _Watched) -> None:
        """Ask the kernel about a connection, and end it if its other side is silent for too long."""
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
            probes, *words = _INFO.unpack(info)
            if self._judge(watched, bool(words[4] or probes), words[12] / 1000):
                copy.shutdown(socket.SHUT_RDWR)

    def _judge(self, watched: _Watched, waits: bool, silent: float) -> bool:
        """Whether nothing was acknowledged for too long although something is on its way.

        Args:
            watched: brought up to date.
            waits: whether something is on its way.
            silent: seconds since the last acknowledgement; large on a connection that was idle before.
        """
        now = time.monotonic()
        if not waits:
            watched.waits_since = None
            return False
        if watched.waits_since is None:
            watched.waits_since = now
        watched.waits_since = max(watched.waits_since, now - silent)
        return now - watched.waits_since >= self._seconds
