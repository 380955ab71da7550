"""Makes a vanished host show within seconds: time limits on this process's TCP connections to other hosts.

A host that loses its power or its link says nothing. MPI libraries set no keepalive, so who only waits for it waits for
ever, and who has sent something waits until the kernel gives up, which takes a quarter of an hour unless the system is
tuned (`net.ipv4.tcp_retries2`). The limits are those of the sockets themselves and need no privilege. A kernel answers
for a process that computes or hangs, so only a silent host or network counts as lost.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
import threading

SILENCE_SECONDS = 10.0
"""How long a host may say nothing before connections to it are given up."""

_SWEEP_SECONDS = 1.0
_PROBES = 3
_LIMITS = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
_DESCRIPTORS = "/proc/self/fd"


class SocketGuard:
    """Limits connections as they appear: libraries connect when a pair of ranks first talks.

    Args:
        seconds: of silence.
        loopback: whether connections within this host count, for tests.
    """

    def __init__(self, seconds: float = SILENCE_SECONDS, loopback: bool = False) -> None:
        self._seconds, self._loopback = seconds, loopback
        self._known: set[tuple[int, int]] = set()
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
        """Limit the connections that are new since the last sweep; returns how many those are."""
        settled, limited = set(), 0
        for name in os.listdir(_DESCRIPTORS):
            try:
                found = os.fstat(int(name))
                key = (int(name), found.st_ino)
                if key not in self._known and stat.S_ISSOCK(found.st_mode):
                    limited += self._limit(int(name))
                settled.add(key)
            except OSError:  # closed meanwhile, listens, or is not connected yet: looked at again
                continue
        self._known = settled
        return limited

    def _limit(self, descriptor: int) -> bool:
        """Set the limits through a copy of the descriptor, so that the library's own stays untouched and open."""
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            if copy.family not in (socket.AF_INET, socket.AF_INET6) or copy.type != socket.SOCK_STREAM:
                return False
            peer = copy.getpeername()[0]
            if not self._loopback and (peer.startswith("127.") or peer in ("::1", "::ffff:127.0.0.1")):
                return False
            pause = max(1, int(self._seconds / _PROBES))
            values = (pause, pause, _PROBES, int(self._seconds * 1000))
            copy.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in zip(_LIMITS, values, strict=True):
                copy.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
            return True
