"""What claims cost a file system that many workers share: listings and opened files."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from fedhpc.sweep.queue_files import QUEUE
from fedhpc.sweep.schedule import Queue
from tests.sweep.test_schedule import claimed


@pytest.fixture(scope="module")
def touched() -> Counter[str]:
    """File operations of this process so far: listings and opens below a sweep's queue."""
    found: Counter[str] = Counter()

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("os.listdir", "open") and f"/{QUEUE}" in str(arguments[0]):
            found[event] += 1

    sys.addaudithook(note)  # cannot be taken back; it only counts
    return found


def test_a_thousand_claims_a_second_without_storms_of_listings(tmp_path: Path, touched: Counter[str]) -> None:
    """Two workers of which the second has not looked since the first took 2000 of 4000 trials."""
    trials = [f"{n:05x}" for n in range(4000)]
    with Queue(tmp_path, trials) as first, Queue(tmp_path, trials) as second:
        assert second.claim() is not None
        touched.clear()
        begun = time.process_time()  # not the clock on the wall: others may be at work here
        for _ in range(2000):
            assert first.claim() is not None
        seconds = time.process_time() - begun
        assert touched["os.listdir"] == 1
        assert touched["open"] <= 2001 + 20, "one file per claim, and a few races"
        assert claimed(second) is not None
        assert touched["os.listdir"] == 1, "the frontier is found by trying, not by listing"
        assert touched["open"] <= 2001 + 40
    assert seconds < 2, f"{2000 / seconds:.0f} claims a second"


def test_an_idle_worker_opens_each_claim_once(tmp_path: Path, touched: Counter[str]) -> None:
    """It waits while others run the last 500 trials: a look costs a listing, not 500 files."""
    trials = [f"{n:05x}" for n in range(500)]
    with Queue(tmp_path, trials) as busy, Queue(tmp_path, trials) as idle:
        while busy.claim() is not None:
            pass
        touched.clear()
        assert idle.claim() is None
        assert touched == {"os.listdir": 1, "open": 500}
        for _ in range(3):
            idle._next_look = 0
            assert idle.claim() is None
        assert touched == {"os.listdir": 4, "open": 500}
