"""What a process is before it computes: it hears signals and dies with its launcher."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedhpc.comm.process import StopRequest, keep_freed_memory, let_through

SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)


@pytest.fixture(autouse=True)
def handlers_put_back() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda n: n.name)
def test_a_signal_asks_for_a_stop_and_ends_nothing(number: signal.Signals) -> None:
    stop = StopRequest().listen()
    assert not stop
    os.kill(os.getpid(), number)
    assert stop
    assert stop.name == number.name


def test_a_second_interrupt_means_it() -> None:
    stop = StopRequest().listen()
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert stop


def test_a_batch_systems_repeated_signal_stays_harmless() -> None:
    stop = StopRequest().listen()
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGUSR1)
    assert stop.name == "SIGUSR1"


@pytest.mark.skipif(sys.platform != "linux", reason="glibc only")
def test_the_allocator_takes_the_settings() -> None:
    # In a process of its own: the setting is for ever.
    code = "import sys; from fedhpc.comm.process import keep_freed_memory; sys.exit(not keep_freed_memory())"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert keep_freed_memory.__doc__


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_a_rank_dies_with_its_launcher(tmp_path: Path) -> None:
    rank = (
        "import os, sys, time; from fedhpc.comm.process import die_with_parent; die_with_parent()\n"
        "open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
    )
    launcher = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"
    noted = tmp_path / "pid"
    process = subprocess.Popen([sys.executable, "-c", launcher, rank, str(noted)])
    end = time.monotonic() + 20
    while not (noted.exists() and noted.read_text()) and time.monotonic() < end:
        time.sleep(0.02)
    pid = int(noted.read_text())
    process.kill()
    process.wait()
    while _alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert not _alive(pid)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_an_abort_waits_until_its_message_was_read() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        stream.write("why it failed\n")
        taken: list[float] = []
        threading.Timer(0.4, lambda: taken.append(len(os.read(reader, 100)))).start()
        let_through(stream)
        assert taken == [14]
    os.close(reader)


def test_an_abort_waits_for_no_reader_that_has_left_and_for_no_file(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    stream.write("nobody reads this")
    began = time.monotonic()
    with (tmp_path / "log").open("w") as file:
        file.write("kept")
        let_through(stream, file)
        assert (tmp_path / "log").read_text() == "kept"
    assert time.monotonic() - began < 1.5
    with contextlib.suppress(BrokenPipeError):
        stream.close()


def test_a_crash_says_where_the_process_stood(tmp_path: Path) -> None:
    """Data that shrink or whose disk fails while they are mapped end the process without an exception."""
    file = tmp_path / "shard"
    file.write_bytes(bytes(1 << 16))
    code = (
        "import mmap, os, sys\n"
        "from fedhpc.comm.process import tell_crashes\n"
        "def read_pixels(mapped):\n"
        "    return mapped[1 << 15]\n"
        "tell_crashes()\n"
        "with open(sys.argv[1], 'r+b') as file:\n"
        "    mapped = mmap.mmap(file.fileno(), 0)\n"
        "    os.truncate(file.fileno(), 0)\n"
        "    read_pixels(mapped)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, file], capture_output=True, text=True)
    assert done.returncode == -signal.SIGBUS
    assert "Bus error" in done.stderr
    assert "in read_pixels" in done.stderr
