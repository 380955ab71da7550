"""Who hangs is worked out from signs of life alone."""

from __future__ import annotations

import io
import threading
import time
from pathlib import Path

import pytest

from fedhpc.comm.liveness import START_SECONDS, Patience, Sign, Watch, accuse, bounded_start
from fedhpc.comm.world import SoloWorld
from fedhpc.timing import Stopwatch

WAITS = Sign(9, 40.0, "barrier", "node1", "wait (round 4)")
QUIET = {0: 1.0, 1: 1.0, 2: 1.0}


def test_a_sign_survives_its_record_whatever_is_in_it() -> None:
    sign = Sign(12, 3.5, "barrier", "node1", "train (client 3, round 4)")
    assert Sign.unpack(sign.pack()) == sign
    assert len(sign.pack()) == len(Sign(1, 0.0, "", "n" * 300, "ü" * 300).pack()) == 192
    assert Sign.unpack(b"\0" * 192) is None
    assert Sign.unpack(b"") is None


def test_the_rank_that_makes_no_progress_is_named_with_its_phase() -> None:
    stuck = Sign(9, 45.0, "", "node2", "train (client 3, round 4)")
    said = accuse({0: WAITS, 1: stuck, 2: WAITS}, QUIET, 30.0)
    assert said == "rank 1 on node2 makes no progress since 45 s; last known phase: train (client 3, round 4)"


def test_the_rank_that_gives_no_sign_is_named_with_its_last_phase() -> None:
    gone = Sign(2, 0.0, "reduce", "node2", "reduce (round 4)")
    said = accuse({0: WAITS, 1: WAITS, 2: gone}, {**QUIET, 2: 31.0}, 30.0)
    assert said is not None
    assert said.startswith("rank 2 on node2 gives no sign of life since 31 s; last known phase: in reduce, reduce")


def test_slow_work_that_goes_on_is_nobodys_fault() -> None:
    busy = Sign(9, 12.0, "", "node2", "train (client 8, round 4)")
    assert accuse({0: WAITS, 1: busy, 2: WAITS}, QUIET, 30.0) is None


def test_all_waiting_for_each_other_is_said() -> None:
    said = accuse({0: WAITS, 1: WAITS}, QUIET, 30.0)
    assert said is not None
    assert "all ranks wait for each other" in said


class Waiting(SoloWorld):
    """A rank of two that waits in a collective, its partner never having come."""

    size, local_rank, inside, ticks = 2, 0, "barrier", 7


def test_a_thread_notices_while_the_main_thread_waits(tmp_path: Path) -> None:
    said: list[str] = []
    heard = threading.Event()

    def end(message: str) -> None:
        said.append(message)
        heard.set()

    clock = Stopwatch()
    began = time.monotonic()
    with clock.phase("wait", round=1), Watch(Waiting(), tmp_path, clock, 0.8, end, None):
        assert heard.wait(timeout=10)
    assert 0.8 < time.monotonic() - began < 8
    assert said[0].startswith("rank 1 on a host not known yet gives no sign of life")
    assert "hang_seconds 0.8" in said[0]


def test_a_rank_that_outlives_its_job_does_not_see_the_next_one(tmp_path: Path) -> None:
    """Cut off from its own job, it must give up although its run goes on."""
    said: list[str] = []
    heard = threading.Event()

    def end(message: str) -> None:
        said.append(message)
        heard.set()

    class Next(Waiting):
        rank = 1

    with Watch(Waiting(), tmp_path, Stopwatch(), 0.8, end, None), Watch(Next(), tmp_path, Stopwatch(), 60.0, end, None):
        assert heard.wait(timeout=10)
    assert said[0].startswith("rank 1 on ")


def test_no_watch_without_a_limit_or_without_others(tmp_path: Path) -> None:
    with Watch(Waiting(), tmp_path, Stopwatch(), 0.0, lambda m: None, None):
        assert not list(tmp_path.iterdir())
    with Watch(SoloWorld(), tmp_path, Stopwatch(), 5.0, lambda m: None, None):
        assert not list(tmp_path.iterdir())


def test_waiting_at_the_start_has_an_end_and_working_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(START_SECONDS, "0.2")
    said: list[str] = []
    with Patience("rank 0, the launch checks", lambda: "", said.append):
        time.sleep(0.7)
    assert said == []
    with Patience("rank 0, the launch checks", lambda: "barrier", said.append):
        time.sleep(0.7)
    assert said == ["rank 0, the launch checks: waits since 0.2 s in barrier for ranks that do not come"]


def test_a_start_is_bounded_where_standard_error_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a notebook, and under pytest, it is an object without a file descriptor."""
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with bounded_start():
        pass
