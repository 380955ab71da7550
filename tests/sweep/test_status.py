"""How far a sweep is, from its files: steps of what runs, time left per dataset, what diverged."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedhpc.report.trial_files import plan_text
from fedhpc.sweep.queue_files import QueueSettings
from fedhpc.sweep.schedule import Queue
from fedhpc.sweep.status import SweepStatus, sweep_status
from fedhpc.sweep.trials import TrialSpec

SPECS = [TrialSpec(dataset, "erm", (env,), 0, 0, 100, 10) for dataset in ("pacs", "vlcs") for env in range(4)]
SETTINGS = QueueSettings(heartbeat=0.03, stale_after=30)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    environments = dict.fromkeys(("pacs", "vlcs"), ("A", "B", "C", "D"))
    text = plan_text([t.planned() for t in SPECS], environments, ["oracle"], {})
    (tmp_path / "plan.json").write_text(text, encoding="utf-8")
    return tmp_path


def finish(sweep: Path, spec: TrialSpec, seconds: float) -> None:
    place = sweep / spec.folder
    place.mkdir(parents=True)
    (place / "done").write_text(json.dumps({"spec": spec.full_dict(), "seconds": seconds}), encoding="utf-8")


def until(sweep: Path, condition: Callable[[SweepStatus], Any]) -> SweepStatus:
    """The status once the heartbeat has told of it."""
    end = time.monotonic() + 10
    while not condition(status := sweep_status(sweep, SETTINGS)):
        assert time.monotonic() < end, status
        time.sleep(0.01)
    return status


def test_steps_of_running_trials_and_the_time_they_leave(sweep: Path) -> None:
    with Queue(sweep, [t.id for t in SPECS], settings=SETTINGS, label={"rank": 3}) as queue:
        claim = queue.claim()
        assert claim is not None
        assert sweep_status(sweep, SETTINGS).seconds_left is None
        queue.worker.tick(trial=claim.trial, step=25, steps=100, seconds=5.0)
        status = until(sweep, lambda s: s.running_trials)
        (running,) = status.running_trials
        assert (running.id, running.step, running.steps, running.dataset) == (SPECS[0].id, 25, 100, "pacs")
        assert "step 25 of 100" in status.text()
        assert status.seconds_left_by_dataset == {"pacs": pytest.approx(75), "vlcs": pytest.approx(80)}
        assert status.seconds_left == pytest.approx(155)
        queue.worker.tick(trial=claim.trial, step=100, steps=100, seconds=20.0)
        finish(sweep, SPECS[0], 8.0)
        queue.done(claim)
        queue.worker.tick()
        status = until(sweep, lambda s: s.done == 1)
        assert status.seconds_left_by_dataset == {"pacs": pytest.approx(24), "vlcs": pytest.approx(32)}
    tree = json.loads(json.dumps(sweep_status(sweep).to_dict()))
    assert {key: tree[key] for key in ("done", "running", "failed", "missing", "seconds_left", "diverged")} == {
        "done": 1, "running": 0, "failed": 0, "missing": 7, "seconds_left": pytest.approx(56), "diverged": 0,
    }  # fmt: skip


def test_diverged_trials_are_counted_as_done(sweep: Path) -> None:
    with Queue(sweep, [t.id for t in SPECS], settings=SETTINGS) as queue:
        claim = queue.claim()
        assert claim is not None
        queue.diverged(claim)
        queue.done(claim)
    status = sweep_status(sweep)
    assert (status.done, status.diverged, status.missing) == (1, 1, 7)
    assert "1 of the trials that are done diverged" in status.text()
