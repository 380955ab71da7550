"""One rank's work in a sweep: the job's clock, kept models, what it says; and the checks that stand before it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from fedhpc.comm.deadline import Deadline
from fedhpc.comm.device import Pinning
from fedhpc.comm.process import StopRequest
from fedhpc.comm.world import SoloWorld
from fedhpc.commands import _sweeping, _trials
from fedhpc.commands._session import Session
from fedhpc.commands._trials import TrialRunner, asked_models, kept_models
from fedhpc.config import from_tree
from fedhpc.data.stores import Store, open_store
from fedhpc.errors import ConfigError
from fedhpc.report.trial_files import read_done
from fedhpc.runs.records import read_records
from fedhpc.sweep.queue_files import count as count_states
from fedhpc.sweep.queue_files import states
from fedhpc.sweep.schedule import Queue
from fedhpc.sweep.settings import SweepConfig
from fedhpc.timing import Stopwatch
from tests.sweep.trials import small

SPEC = small(steps=40, checkpoint_freq=20)


@pytest.fixture(scope="module")
def stores() -> dict[str, Store]:
    return {"rotated_digits": open_store("rotated_digits", None)}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(folder: Path, stores: dict[str, Store], end: float | None = None, **options: Any) -> tuple[bool, str | None]:
    """Run the trial as one rank would; returns whether it was settled, and who asked for a stop."""
    (folder / "log").mkdir(parents=True, exist_ok=True)
    session, clock = Session(SoloWorld(), StopRequest(), debug=False), Stopwatch()
    given: dict[str, Any] = {"device": "cpu", "checkpoint_seconds": 300, "weights_file": None, "models": {}, **options}
    with Queue(folder, [SPEC.id]) as queue:
        settled = TrialRunner(session, folder, stores, queue, clock, end=end, **given).run({SPEC.id: SPEC})
    assert clock.ticks > 2 or not settled
    return settled, session.stop.name


def records(folder: Path) -> list[tuple[str, float | None, int, int | None]]:
    found = read_records(folder / SPEC.folder / "metrics.jsonl")
    return [(r.what, r.value, r.round, r.environment) for r in found if r.what not in ("step_seconds", "memory_gib")]


@pytest.mark.parametrize("end", [30.0, 70.0], ids=["in an evaluation", "between two steps"])
def test_it_stops_before_the_job_ends_and_goes_on_to_the_same_records(
    end: float, stores: dict[str, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at this clock takes a second; eleven and a half of them are kept for the way out."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run(whole, stores) == (True, None)
    ticks = count()
    monkeypatch.setattr(_trials, "Deadline", lambda ask, _: Deadline(ask, ask, lambda: float(next(ticks))))
    assert run(broken, stores, end) == (False, "the job's time is running out")
    assert next(ticks) < end
    assert list(broken.glob("queue/*.released"))
    assert list((broken / SPEC.folder).glob("attempt-1/checkpoint.safetensors"))
    monkeypatch.undo()
    assert run(broken, stores) == (True, None)
    assert records(broken) == records(whole)
    done, wanted = read_done(broken / SPEC.folder), read_done(whole / SPEC.folder)
    assert (done["weights_sha256"], done["attempts"]) == (wanted["weights_sha256"], 2)


def test_nothing_is_claimed_when_too_little_time_is_left(stores: dict[str, Store], tmp_path: Path) -> None:
    assert run(tmp_path, stores, end=1.0) == (False, "the job's time is running out")
    assert not list(tmp_path.glob("queue/*"))


def test_a_trial_that_is_done_runs_again_for_a_model_that_it_lacks(stores: dict[str, Store], tmp_path: Path) -> None:
    run(tmp_path, stores)
    before = records(tmp_path)
    (tmp_path / "queue" / f"{SPEC.id}.done").unlink()
    run(tmp_path, stores, models={SPEC.id: {20}})
    assert (tmp_path / SPEC.folder / "model-step-20.safetensors").exists()
    assert records(tmp_path) == before


def test_a_diverged_trial_is_marked(stores: dict[str, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.SPEC", small(hparams={"batch_size": 8, "lr": 1e30}))
    run(tmp_path, stores)
    assert read_done(tmp_path / SPEC.folder)["diverged"] is True
    assert list(tmp_path.glob("queue/*.diverged"))
    assert count_states(states(tmp_path, [SPEC.id])).done == 1


def test_root_speaks_before_the_first_trial_ends(
    stores: dict[str, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_trials, "_FIRST_WORD", 0.0)
    run(tmp_path, stores)
    said = capsys.readouterr().out
    assert "rank 0 has done step 0 of 40: erm on rotated_digits" in said
    assert said.count("has done step") == 1, "the next word comes after a minute"


def test_models_are_asked_for_by_step() -> None:
    assert asked_models(None) == (None, {})
    assert asked_models("ab,cd@300,cd@0") == (("ab", "cd"), {"cd": {300, 0}})
    assert kept_models({SPEC.id: {3}}, [SPEC], "last") == {SPEC.id: {3, 39}}
    assert kept_models({}, [SPEC], "none") == {}
    with pytest.raises(ConfigError, match="has steps 0 to 39, not 40"):
        kept_models({SPEC.id: {40}}, [SPEC], "none")
    with pytest.raises(ConfigError, match="'ab@x' is no ID or ID@STEP"):
        asked_models("ab@x")


class TwoRanks(SoloWorld):
    """Root of two ranks, of which the other answers as it is told."""

    size = 2
    answer: Any = None

    def gather(self, small: Any) -> list[Any]:
        return [small, self.answer]


def test_a_sweep_is_refused_where_a_node_does_not_see_its_folder(tmp_path: Path) -> None:
    world = TwoRanks()
    world.answer = "node7"
    config = tmp_path / "sweep.yaml"
    config.write_text("sweep: {datasets: [rotated_digits], algorithms: [erm]}", encoding="utf-8")
    session = Session(world, StopRequest(), debug=False)
    with pytest.raises(ConfigError, match=r"not seen by node7; put --out on a file system"):
        _sweeping.prepare(session, str(config), [], tmp_path / "out", None, dry=False)
    assert json.loads((tmp_path / "out" / "plan.json").read_text(encoding="utf-8"))["data"]


def test_gpus_shared_by_accident_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world, gpus = TwoRanks(), ("A 0", "A 1")
    first, world.answer = (Pinning(rank, "here", rank, 8, 4, "cuda:0", "A 0", gpus) for rank in (0, 1))
    monkeypatch.setattr("fedhpc.comm.device.pin", lambda *_: first)
    session = Session(world, StopRequest(), debug=False)
    config = from_tree(SweepConfig, {"sweep": {"datasets": ["rotated_digits"]}}, "test")
    with pytest.raises(ConfigError, match="share the GPU A 0 of here while 1 other"):
        _sweeping._pin(session, config)


def test_a_job_that_computes_with_something_else_than_the_last_is_told(tmp_path: Path) -> None:
    def job(*ranks: tuple[str, str, int]) -> list[dict[str, Any]]:
        return [{"device": device, "label": label, "threads": threads} for device, label, threads in ranks]

    one, two = job(("cpu", "CPU", 1), ("cpu", "CPU", 1)), job(("cpu", "CPU", 2))
    gpu, other = job(("cuda:0", "Some GPU a-1", 4)), job(("cuda:1", "Some GPU b-2", 8))
    assert _sweeping.other_devices(tmp_path, one) is None
    (tmp_path / "log").mkdir()
    for number, (before, now, said) in enumerate(
        [(one, one[:1], None), (one, two, "on CPU with 1 thread(s), now it is CPU with 2 thread(s)"),
         (gpu, other, None), (gpu, two, "on Some GPU, now it is CPU")]
    ):  # fmt: skip
        file = tmp_path / "log" / f"environment-{number}.json"
        file.write_text(json.dumps({"ranks": before}), encoding="utf-8")
        os.utime(file, (number, number))
        found = _sweeping.other_devices(tmp_path, now)
        assert (found is None) == (said is None)
        assert said is None or said in str(found)
    file.write_text("{", encoding="utf-8")
    assert _sweeping.other_devices(tmp_path, one) is None
