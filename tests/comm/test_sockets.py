"""Connections to other hosts get time limits, whoever made them; nothing else is touched."""

from __future__ import annotations

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


def timeout_of(connection: socket.socket) -> int:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)


def test_both_ends_are_limited_once_and_no_descriptor_is_left(pair: tuple[socket.socket, socket.socket]) -> None:
    guard, before = SocketGuard(6, loopback=True), len(os.listdir("/proc/self/fd"))
    assert guard.sweep() >= 2
    for connection in pair:
        assert timeout_of(connection) == 6000
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 2
    assert guard.sweep() == 0
    assert len(os.listdir("/proc/self/fd")) == before
    pair[0].sendall(b"still usable")
    assert pair[1].recv(100) == b"still usable"


def test_connections_within_a_host_are_left_alone(pair: tuple[socket.socket, socket.socket]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(socket.AF_UNIX):
        SocketGuard(6).sweep()
    assert [timeout_of(connection) for connection in pair] == [0, 0]


def test_a_connection_that_is_made_later_is_found(pair: tuple[socket.socket, socket.socket]) -> None:
    late = socket.socket()
    guard = SocketGuard(6, loopback=True)
    guard.sweep()
    assert timeout_of(late) == 0
    with socket.create_server(("127.0.0.1", 0)) as server, late:
        late.connect(server.getsockname())
        guard.start()
        end = time.monotonic() + 10
        while not timeout_of(late):
            assert time.monotonic() < end, "the same descriptor counts once it is connected"
            time.sleep(0.05)
        guard.stop()
