"""One trial: the same numbers again, after a stop, and whatever else runs; records that say what they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedhpc.data.splits import split_table
from fedhpc.data.stores import Store, open_store
from fedhpc.errors import ConfigError
from fedhpc.report.trial_files import METRICS, read_trial
from fedhpc.sweep.run_trial import Trial, run_trial
from fedhpc.sweep.settings import STUDY
from fedhpc.sweep.trial_folder import TrialFolder
from tests.sweep.trials import SETUP, Kept, small

IN_AN_EVALUATION, BETWEEN_TWO = 5, 15
"""Questions whether to stop: an evaluation asks 12 times, an update once."""


@pytest.fixture(scope="module")
def digits() -> Store:
    return open_store("rotated_digits", None)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def stopping_after(step: int, place: Path, attempt: int) -> TrialFolder:
    """A folder that asks for a stop once so many updates are done."""
    seen = [0]
    return TrialFolder(place, attempt, should_stop=lambda: max(seen) >= step, progress=lambda s, _: seen.append(s))


@pytest.mark.parametrize("algorithm", STUDY)
def test_a_trial_goes_on_where_it_was_stopped(digits: Store, algorithm: str) -> None:
    """Bit for bit, in the middle of an interval between two records, for every algorithm's own state."""
    spec = small(algorithm)
    whole, first = Kept(), Kept(stop_after=IN_AN_EVALUATION if algorithm == "dann" else BETWEEN_TWO)
    wanted = run_trial(spec, digits, whole)
    assert run_trial(spec, digits, first) is None
    torch.manual_seed(123)  # what another trial leaves behind
    second = Kept(state=first.state)
    done = run_trial(spec, digits, second)
    assert wanted is not None
    assert done is not None
    assert done["weights_sha256"] == wanted["weights_sha256"]
    assert [*first.without_times(), *second.without_times()] == whole.without_times()
    assert [first.state[1]["step"], len(first.records) > 0] == ([1, False] if algorithm == "dann" else [3, True])  # type: ignore[index]


def test_a_stop_in_the_last_evaluation_loses_no_record(digits: Store) -> None:
    spec, whole, first = small(steps=3), Kept(), Kept(stop_after=20)
    wanted = run_trial(spec, digits, whole)
    assert run_trial(spec, digits, first) is None
    assert first.state is not None
    assert first.state[1]["step"] == 3
    second = Kept(state=first.state)
    assert run_trial(spec, digits, second)["weights_sha256"] == wanted["weights_sha256"]  # type: ignore[index]
    assert [*first.without_times(), *second.without_times()] == whole.without_times()


def test_models_are_kept_after_the_steps_that_are_asked_for(digits: Store, tmp_path: Path) -> None:
    """Also if the trial was stopped after such a step by someone who did not keep it."""
    spec, place = small(), tmp_path / "trial"
    before = stopping_after(5, place, 1)
    assert run_trial(spec, digits, before) is None
    before.leave()
    sink = TrialFolder(place, 2, models={3, 7})
    done = run_trial(spec, digits, sink)
    assert done is not None
    sink.finish(done)
    kept = [load_file(place / f"model-step-{step}.safetensors") for step in (3, 7)]
    memory = Kept()
    memory.wanted = {3, 7}
    again = run_trial(spec, digits, memory)
    assert again is not None
    for model, step in zip(kept, (3, 7), strict=True):
        assert all(torch.equal(model[name], value) for name, value in memory.models[step].items())
    assert not torch.equal(kept[0]["classifier.weight"], kept[1]["classifier.weight"])


def test_a_trial_without_a_finite_loss_is_marked(digits: Store) -> None:
    done = run_trial(small(hparams={"batch_size": 8, "lr": 1e30}), digits, Kept())
    assert done is not None
    assert done["diverged"]
    assert run_trial(small(), digits, Kept())["diverged"] is False  # type: ignore[index]


def test_an_interrupted_mean_is_the_same_to_the_last_bit(digits: Store) -> None:
    """Losses are summed in double precision, as a checkpoint keeps them, so a long sum does not depend on the cut."""
    spec = small("mixup", steps=42, checkpoint_freq=40)
    whole, first = Kept(), Kept(stop_after=BETWEEN_TWO + 18)
    run_trial(spec, digits, whole)
    assert run_trial(spec, digits, first) is None
    second = Kept(state=first.state)
    run_trial(spec, digits, second)
    assert [*first.without_times(), *second.without_times()] == whole.without_times()


def test_records_have_roles_and_steps(digits: Store) -> None:
    sink = Kept()
    run_trial(small(test_envs=(0, 2)), digits, sink)
    roles = {(what, env) for what, _, _, env in sink.records if env is not None}
    held_out = {(what, env) for env in (0, 2) for what in ("test_accuracy", "oracle_accuracy")}
    trained = {(what, env) for env in (1, 3) for what in ("train_accuracy", "validation_accuracy")}
    assert roles == held_out | trained
    assert sorted({step for _, _, step, _ in sink.records}) == [0, 3, 6, 7]
    assert {"loss", "epoch", "step_seconds", "memory_gib"} <= {what for what, _, _, _ in sink.records}
    epochs = [value for what, value, _, _ in sink.records if what == "epoch"]
    smallest = min(len(s.inside) for s in split_table(digits.table, 0, (0, 2)))
    assert epochs == [step * 8 / smallest for step in (0, 3, 6, 7)]


def test_losses_are_means_since_the_last_record(digits: Store) -> None:
    every, third = Kept(), Kept()
    run_trial(small(steps=7, checkpoint_freq=1), digits, every)
    run_trial(small(steps=7, checkpoint_freq=3), digits, third)
    losses = [value for what, value, _, _ in every.records if what == "loss"]
    wanted = [losses[0], sum(losses[1:4]) / 3, sum(losses[4:7]) / 3]
    assert [value for what, value, _, _ in third.records if what == "loss"] == pytest.approx(wanted, rel=1e-6)


def test_held_out_environments_do_not_touch_the_training(digits: Store) -> None:
    """Blank the test environment's pixels: the weights are the same, only its accuracies change."""
    spec = small()
    pixels = digits.images(torch.arange(digits.num_samples).numpy()).copy()
    pixels[digits.table.environment == 1] = 0
    blanked = type(digits)(digits.manifest, digits.table, pixels)  # type: ignore[call-arg, arg-type]
    one, other = run_trial(spec, digits, Kept()), run_trial(spec, blanked, Kept())
    assert one is not None
    assert other is not None
    assert one["weights_sha256"] == other["weights_sha256"]


def test_a_model_learns(digits: Store) -> None:
    sink = Kept()
    spec = small(steps=201, checkpoint_freq=200, hparams={"batch_size": 32, "lr": 3e-3})
    run_trial(spec, digits, sink)
    at_end = {(what, env): value for what, value, step, env in sink.records if step == 200}
    assert at_end["validation_accuracy", 0] > 0.8
    assert at_end["test_accuracy", 1] > 0.8


def test_validation_without_the_training_parts(digits: Store) -> None:
    sink = Kept()
    run_trial(small(setup={**SETUP, "train_accuracy": False}), digits, sink)
    assert "train_accuracy" not in {what for what, _, _, _ in sink.records}
    assert "validation_accuracy" in {what for what, _, _, _ in sink.records}


def test_the_split_of_the_dataset_reaches_the_trial(digits: Store) -> None:
    table = replace(digits.table, split=np.tile([0, 0, 1], digits.num_samples)[: digits.num_samples].astype(np.uint8))
    marked = type(digits)(digits.manifest, table, digits.images(np.arange(digits.num_samples)))  # type: ignore[call-arg, arg-type]
    trial = Trial(small(setup={**SETUP, "stored_split": True}), marked)
    for what, _, indices, _ in trial.parts():
        assert set(table.split[indices]) == {0 if what in ("train_accuracy", "test_accuracy") else 1}


def test_hyperparameters_reach_what_they_are_for(digits: Store) -> None:
    trial = Trial(small("dann", hparams={"batch_size": 4, "nonlinear_classifier": True, "lr_g": 0.5}), digits)
    assert trial.hparams["batch_size"] == 4
    assert trial.hparams["lr_g"] == 0.5
    assert isinstance(trial._objective.model.classifier, torch.nn.Sequential)
    with pytest.raises(ConfigError, match="maml"):
        Trial(small("maml"), digits)


def test_a_batch_larger_than_an_environment_does_not_hang(digits: Store) -> None:
    assert run_trial(small(steps=1, hparams={"batch_size": 1000}), digits, Kept()) is not None


def test_attempts_hand_over_through_the_folder(digits: Store, tmp_path: Path) -> None:
    spec = small("irm")
    place = tmp_path / spec.folder
    first = stopping_after(2, place, 1)
    assert run_trial(spec, digits, first) is None
    first.record("loss", 1.0, "", 99, 0.0)  # written after the checkpoint: belongs to nobody
    first.leave()
    second = TrialFolder(place, 2)
    assert second.restore() is not None
    done = run_trial(spec, digits, second)
    assert done is not None
    second.finish(done)
    undisturbed = TrialFolder(tmp_path / "other", 1)
    wanted = run_trial(spec, digits, undisturbed)
    undisturbed.leave()
    assert done["weights_sha256"] == wanted["weights_sha256"]  # type: ignore[index]
    trial = read_trial(place, tmp_path)
    assert [c.step for c in trial.checkpoints] == [0, 3, 6, 7]
    assert sorted(p.name for p in place.iterdir()) == ["done", "metrics.jsonl"]
    assert json.loads((place / "done").read_text())["spec"]["seed"] == spec.seed


def test_a_damaged_checkpoint_means_an_older_one(digits: Store, tmp_path: Path) -> None:
    spec, place = small(), tmp_path / "trial"
    for attempt, after in ((1, 2), (2, 3)):
        sink = stopping_after(after, place, attempt)
        assert run_trial(spec, digits, sink) is None
        sink.leave()
    newest = place / "attempt-2" / "checkpoint.safetensors"
    newest.write_bytes(newest.read_bytes()[:100])
    third = TrialFolder(place, 3)
    state = third.restore()
    assert state is not None
    assert state[1]["step"] == 2
    (place / "attempt-1" / METRICS).write_bytes(b"")
    assert TrialFolder(place, 4).restore() is None
