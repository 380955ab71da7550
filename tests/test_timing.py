"""Phases add up, nest, and remember what failed."""

from __future__ import annotations

import time

import pytest

from fedhpc import timing
from fedhpc.timing import Stopwatch, describe, doing_of


def test_seconds_of_a_phase_add_up() -> None:
    clock = Stopwatch()
    for _ in range(2):
        with clock.phase("train", client=1):
            time.sleep(0.02)
    with clock.phase("wait"):
        pass
    assert 0.04 <= clock.totals["train"] < 0.5
    assert clock.totals["wait"] < 0.02
    assert [e.name for e in clock.events] == ["train", "train", "wait"]
    assert clock.events[0].detail == {"client": 1}
    assert clock.events[1].start >= clock.events[0].start + clock.events[0].seconds


def test_the_device_is_waited_for_at_both_borders() -> None:
    seen: list[int] = []
    clock = Stopwatch(lambda: seen.append(len(seen)))
    with clock.phase("train"):
        inside = len(seen)
    assert inside == 1
    assert len(seen) == 2


def test_an_error_remembers_the_innermost_phase() -> None:
    clock = Stopwatch()
    with pytest.raises(KeyError) as caught, clock.phase("round", round=4), clock.phase("train", client=3, round=4):
        raise KeyError("x")
    assert doing_of(caught.value) == "train (client 3, round 4)"
    assert clock.current == []


def test_an_error_after_an_inner_phase_names_the_outer_one() -> None:
    clock = Stopwatch()

    def work() -> None:
        with clock.phase("evaluate"):
            with clock.phase("train", client=3):
                pass
            raise ValueError("x")

    with pytest.raises(ValueError, match="x") as caught:
        work()
    assert doing_of(caught.value) == "evaluate"


def test_an_error_without_a_phase_says_nothing() -> None:
    assert doing_of(ValueError("x")) == ""
    assert describe("train", {}) == "train"


def test_a_phase_that_failed_is_not_counted() -> None:
    clock = Stopwatch()
    with pytest.raises(ValueError, match="x"), clock.phase("train"):
        raise ValueError("x")
    assert clock.totals["train"] == 0
    assert clock.events == []


def test_a_long_run_keeps_its_totals_but_not_every_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_MAX_EVENTS", 3)
    clock = Stopwatch()
    for _ in range(5):
        with clock.phase("train"):
            time.sleep(0.002)
    assert len(clock.events) == 3
    assert clock.totals["train"] >= 0.01
