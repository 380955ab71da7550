"""Connections to other hosts get time limits, whoever made them; nothing else is touched."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator

import pytest

from fedhpc.comm.sockets import SocketGuard

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            yield client, accepted


def idle_limit(connection: socket.socket) -> int:
    """Seconds of silence before the first probe; the system's own is 7,200."""
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)


def test_both_ends_are_limited_once_and_no_descriptor_is_left(pair: tuple[socket.socket, socket.socket]) -> None:
    guard, before = SocketGuard(6, loopback=True), len(os.listdir("/proc/self/fd"))
    assert guard.sweep() >= 2
    for connection in pair:
        assert idle_limit(connection) == 2
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert guard.sweep() == 0
    assert len(os.listdir("/proc/self/fd")) == before
    pair[0].sendall(b"still usable")
    assert pair[1].recv(100) == b"still usable"


def test_connections_within_a_host_are_left_alone(pair: tuple[socket.socket, socket.socket]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(socket.AF_UNIX):
        SocketGuard(6).sweep()
    assert all(idle_limit(connection) > 60 for connection in pair)


def test_a_connection_that_is_made_later_is_found(pair: tuple[socket.socket, socket.socket]) -> None:
    late = socket.socket()
    guard = SocketGuard(6, loopback=True)
    guard.sweep()
    assert idle_limit(late) > 60
    with socket.create_server(("127.0.0.1", 0)) as server, late:
        late.connect(server.getsockname())
        guard.start()
        end = time.monotonic() + 10
        while idle_limit(late) > 60:
            assert time.monotonic() < end, "the same descriptor counts once it is connected"
            time.sleep(0.05)
        guard.stop()


def test_a_living_process_that_does_not_read_is_not_lost(pair: tuple[socket.socket, socket.socket]) -> None:
    guard, (sender, receiver) = SocketGuard(1, loopback=True), pair
    sender.setblocking(False)
    sent = 0
    end = time.monotonic() + 4
    while time.monotonic() < end:
        with contextlib.suppress(BlockingIOError):
            sent += sender.send(bytes(1 << 20))
        guard.sweep()
        time.sleep(0.1)
    assert sent > 0
    receiver.settimeout(5)
    left = sent
    while left:
        left -= len(receiver.recv(min(left, 1 << 20)))


def test_what_the_kernel_says_of_a_silent_host_ends_the_connection(pair: tuple[socket.socket, socket.socket]) -> None:
    guard, (sender, _) = SocketGuard(0.3, loopback=True), pair
    guard.sweep()
    watched = {key[0]: entry for key, entry in guard._known.items()}[sender.fileno()]
    told = [
        (0, 0.0),
        (3, 50.0),
        (3, 50.0),
        (3, 0.01),
        (3, 50.0),
        (3, 50.0),
    ]  # segments on their way, seconds of silence
    ended = []
    for unacknowledged, silent in told:
        guard._judge(watched, bool(unacknowledged), silent)
        time.sleep(0.2)
        ended.append(guard._judge(watched, bool(unacknowledged), silent))
    assert ended == [False, False, True, False, False, True]
