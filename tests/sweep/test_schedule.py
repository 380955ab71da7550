"""Claims by real processes on a real folder: every trial once, whatever dies on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedhpc.errors import FedhpcError
from fedhpc.sweep.queue_files import QUEUE, QueueSettings, count, failures, forgive, reopen, states
from fedhpc.sweep.schedule import Claim, Queue, work

TRIALS = [f"{n:04x}" for n in range(60)]

WORKER = """
    import sys, time
    from pathlib import Path
    from fedhpc.sweep.queue_files import QueueSettings
    from fedhpc.sweep.schedule import Queue, work

    folder, trials, offset = Path(sys.argv[1]), sys.argv[2].split(","), int(sys.argv[3])
    seconds, stale_after, what = float(sys.argv[4]), float(sys.argv[5]), sys.argv[6]

    def attempt(claim):
        with (folder / "ran").open("a") as log:
            log.write(f"{claim.trial} {claim.attempt} {queue.worker.name}\\n")
        (folder / f"begun-{claim.trial}").touch()
        time.sleep(seconds)
        if what == "fail":
            raise RuntimeError(f"no luck with {claim.trial}")
        if claim.is_lost:
            (folder / f"lost-{claim.trial}").touch()
            return "lost"
        return "done"

    with Queue(folder, trials, offset, QueueSettings(heartbeat=0.05, stale_after=stale_after)) as queue:
        ended = work(queue, attempt)
    sys.exit(0 if ended else 3)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a worker process; whatever is left at the end is killed."""
    script = tmp_path / "worker.py"
    script.write_text(textwrap.dedent(WORKER), encoding="utf-8")
    begun: list[subprocess.Popen[bytes]] = []

    def run(
        trials: list[str], offset: int = 0, seconds: float = 0.0, stale: float = 60.0, what: str = ""
    ) -> subprocess.Popen[bytes]:
        words = [str(tmp_path), ",".join(trials), str(offset), str(seconds), str(stale), what]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        begun.append(subprocess.Popen([sys.executable, str(script), *words], env=environment))
        return begun[-1]

    yield run
    for process in begun:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


def ran(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "ran").read_text(encoding="utf-8").splitlines()]


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not come"
        time.sleep(0.01)


def test_every_trial_runs_once_on_many_workers(tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    processes = [start(TRIALS, offset=n, seconds=0.005) for n in range(4)]
    assert [p.wait(30) for p in processes] == [0] * 4
    assert Counter(trial for trial, _, _ in ran(tmp_path)) == Counter(TRIALS)
    assert len({worker for _, _, worker in ran(tmp_path)}) > 1
    assert count(states(tmp_path, TRIALS)).done == len(TRIALS)
    assert not any((tmp_path / "workers").iterdir())


def test_the_longest_comes_first(tmp_path: Path) -> None:
    with Queue(tmp_path, TRIALS) as queue:
        assert [claimed(queue).trial for _ in range(5)] == TRIALS[:5]
    with Queue(tmp_path, TRIALS, offset=2) as queue:
        assert claimed(queue).trial == TRIALS[7]
        assert {claimed(queue).trial for _ in range(len(TRIALS) - 6)} == {*TRIALS[5:]} - {TRIALS[7]}


def claimed(queue: Queue) -> Claim:
    """The next claim; a look at the folder has to wait its time."""
    end = time.monotonic() + 10
    while (claim := queue.claim()) is None:
        assert time.monotonic() < end, "nothing to claim"
        time.sleep(0.01)
    return claim


def test_a_killed_workers_trial_is_taken_over_at_once(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    victim = start(TRIALS[:3], seconds=60)
    wait_for((tmp_path / f"begun-{TRIALS[0]}").exists)
    assert count(states(tmp_path, TRIALS[:3])).running == 1
    victim.kill()
    victim.wait()
    assert states(tmp_path, TRIALS[:3]) == {TRIALS[0]: "abandoned", TRIALS[1]: "missing", TRIALS[2]: "missing"}
    assert start(TRIALS[:3]).wait(10) == 0
    assert [(trial, attempt) for trial, attempt, _ in ran(tmp_path)] == [
        (TRIALS[0], "1"), (TRIALS[1], "1"), (TRIALS[2], "1"), (TRIALS[0], "2"),
    ]  # fmt: skip


def test_a_silent_workers_trial_is_taken_over_and_it_notices(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Stopped is not dead: the heartbeat tells, and a worker that comes back leaves the trial to its successor."""
    sleeper = start(TRIALS[:1], seconds=1, stale=0.5)
    wait_for((tmp_path / f"begun-{TRIALS[0]}").exists)
    sleeper.send_signal(signal.SIGSTOP)
    assert start(TRIALS[:1], stale=0.5).wait(10) == 0
    sleeper.send_signal(signal.SIGCONT)
    assert sleeper.wait(10) == 0
    assert [attempt for _, attempt, _ in ran(tmp_path)] == ["1", "2"]
    assert (tmp_path / f"lost-{TRIALS[0]}").exists()


def test_a_living_workers_trial_is_left_alone(tmp_path: Path) -> None:
    with Queue(tmp_path, TRIALS[:1]) as owner, Queue(tmp_path, TRIALS[:1]) as other:
        assert owner.claim() is not None
        for _ in range(20):
            assert other.claim() is None
            time.sleep(0.01)
        assert not other.settled


def test_a_claim_that_was_never_signed_is_old_before_it_is_taken(tmp_path: Path) -> None:
    """The owner died between creating the file and writing its name into it."""
    (tmp_path / QUEUE).mkdir()
    claim = tmp_path / QUEUE / f"{TRIALS[0]}.1"
    claim.touch()
    with Queue(tmp_path, TRIALS[:1]) as queue:
        assert queue.claim() is None
        os.utime(claim, (1, 1))
        assert claimed(queue).attempt == 2


def test_a_failure_is_retried_elsewhere_and_then_recorded(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    processes = [start(TRIALS[:2], offset=n, seconds=0.2, what="fail") for n in range(2)]
    assert [p.wait(20) for p in processes] == [0, 0]
    attempts = ran(tmp_path)
    assert len(attempts) == 4
    for trial in TRIALS[:2]:
        assert len({worker for t, _, worker in attempts if t == trial}) == 2
    assert states(tmp_path, TRIALS[:2]) == dict.fromkeys(TRIALS[:2], "failed")
    recorded = failures(tmp_path, TRIALS[0])
    assert len(recorded) == 2
    assert f"RuntimeError: no luck with {TRIALS[0]}" in recorded[0]["traceback"]
    assert {"host", "pid"} <= set(recorded[0])


def test_a_lone_worker_retries_itself_and_goes_on(tmp_path: Path) -> None:
    tried: list[tuple[str, int]] = []

    def attempt(claim: Claim) -> str:
        tried.append((claim.trial, claim.attempt))
        if claim.trial == TRIALS[0]:
            raise ValueError("never")
        return "done"

    with Queue(tmp_path, TRIALS[:3]) as queue:
        assert work(queue, attempt)  # type: ignore[arg-type]
    assert tried == [(TRIALS[0], 1), (TRIALS[1], 1), (TRIALS[2], 1), (TRIALS[0], 2)]
    status = count(states(tmp_path, TRIALS[:3]))
    assert (status.done, status.failed) == (2, 1)
    assert forgive(tmp_path, TRIALS) == 1
    assert states(tmp_path, TRIALS[:1]) == {TRIALS[0]: "missing"}


def test_what_kills_its_workers_is_given_up(tmp_path: Path) -> None:
    settings = QueueSettings(most_deaths=3)
    (tmp_path / QUEUE).mkdir()
    for number in (1, 2, 3):
        (tmp_path / QUEUE / f"{TRIALS[0]}.{number}").write_text("gone", encoding="utf-8")
    with Queue(tmp_path, TRIALS[:1], settings=settings) as queue:
        assert work(queue, lambda claim: "done")
    assert states(tmp_path, TRIALS[:1]) == {TRIALS[0]: "failed"}


def test_what_is_stopped_is_gone_on_with_by_the_next(tmp_path: Path) -> None:
    with Queue(tmp_path, TRIALS[:1]) as queue, Queue(tmp_path, TRIALS[:1]) as other:
        begun: list[Claim] = []
        assert not work(queue, lambda claim: begun.append(claim) or "stopped", lambda: bool(begun))  # type: ignore[arg-type, func-returns-value]
        assert claimed(other).attempt == 2


def test_a_full_disk_ends_the_work_and_no_trial_fails_on_it(tmp_path: Path) -> None:
    def attempt(claim: Claim) -> str:
        with open("/dev/full", "w") as full:
            try:
                full.write("x")
                full.flush()
            except OSError as error:
                raise FedhpcError("metrics.jsonl: cannot be written") from error
        return "done"

    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with Queue(tmp_path, TRIALS[:2]) as queue, pytest.raises((FedhpcError, OSError)):
        work(queue, attempt)  # type: ignore[arg-type]
    assert count(states(tmp_path, TRIALS[:2])).missing == 2


def test_a_worker_that_hangs_in_a_trial_loses_it(tmp_path: Path) -> None:
    """Its process lives and its heartbeat could beat, but it takes no steps; one that takes them keeps the trial."""
    settings = QueueSettings(heartbeat=0.05, stale_after=0.3)
    with (
        Queue(tmp_path, TRIALS[:2], settings=settings, hang_seconds=0.3) as slow,
        Queue(tmp_path, TRIALS[:2], settings=settings, hang_seconds=0.3) as stuck,
        Queue(tmp_path, TRIALS[:2], settings=settings, hang_seconds=0.3) as other,
    ):
        kept, lost = slow.claim(), stuck.claim()
        assert kept is not None
        assert lost is not None
        stuck.worker.tick(trial=lost.trial, step=0, steps=9, seconds=0.0)
        taken: Claim | None = None
        end = time.monotonic() + 10
        while taken is None:
            assert time.monotonic() < end
            slow.worker.tick(trial=kept.trial, step=1, steps=9, seconds=0.0)
            taken = other.claim()
            time.sleep(0.02)
        assert (taken.trial, taken.attempt) == (lost.trial, 2)
        assert lost.is_lost
        assert not kept.is_lost


def test_a_trial_that_is_reopened_does_not_wait_for_a_worker_that_went_on(tmp_path: Path) -> None:
    """It lives, with other trials of its job; another job is asked for this one's model (`--only ID@STEP`)."""
    with Queue(tmp_path, TRIALS[:2]) as first, Queue(tmp_path, TRIALS[:1]) as second:
        claim = first.claim()
        assert claim is not None
        first.diverged(claim)
        first.done(claim)
        assert first.claim() is not None
        assert reopen(tmp_path, lambda trial: False, TRIALS) == 0
        assert reopen(tmp_path, lambda trial: True, TRIALS) == 1
        assert states(tmp_path, TRIALS[:2]) == {TRIALS[0]: "missing", TRIALS[1]: "running"}
        again = second.claim()
        assert again is not None
        assert (again.trial, again.attempt) == (TRIALS[0], 2)
        assert reopen(tmp_path, lambda trial: True, TRIALS) == 0, "it is running"
