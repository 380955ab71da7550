"""What medical clients carry: momentum, own layers, averages over steps; and the two stages of CRT."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fedhpc.comm.world import SoloWorld
from fedhpc.commands import _federation as build
from fedhpc.commands import _medical
from fedhpc.errors import ConfigError
from fedhpc.medical.averaging import _Average
from fedhpc.medical.config import load_medical
from fedhpc.medical.longtail import head_names
from fedhpc.medical.recipes._base import Averaging
from fedhpc.medical.stages import Schedule, Stage, stages
from fedhpc.timing import Stopwatch
from tests.conftest import REPOSITORY
from tests.federated.federation import MemorySink

CONFIG = str(REPOSITORY / "configs" / "smoke" / "medical" / "fedavg.yaml")
SHORT = ("--rounds", "4", "--scenario.tasks", "2", "--scenario.clients", "3", "--model.hidden", "[8]")


class Ran:
    """A medical run of all its stages on one rank, with the server's weights after each."""

    def __init__(self, recipe: str, *options: str) -> None:
        self.config = config = load_medical(CONFIG, ["--recipe.name", recipe, *SHORT, *options])
        world, self.sink = SoloWorld(), MemorySink()
        self.data = _medical.open_data(world, config)
        self.model, _ = build.build_model(world, config, self.data.store, "cpu")
        self.run = _medical.build_run(world, config, self.data, self.model, "cpu")
        self.after: list[Tensor] = []
        engine = None
        for stage in self.run.stages:
            following = self.run.engine(stage, self.sink, Stopwatch(), None, lambda: False)  # type: ignore[arg-type]
            if engine is not None:
                following.continue_from(engine)
            engine = following
            self.run.begin(stage, engine)
            engine.run()
            assert engine.server is not None
            self.after.append(engine.server.vectors["weights"].clone())
        assert engine is not None
        self.engine = engine

    def values(self, what: str) -> list[tuple[Any, Any, float]]:
        return [(at.get("client"), at.get("task"), value) for w, value, _, at in self.sink.records if w == what]


def test_stages_of_a_run() -> None:
    config = load_medical(CONFIG, ["--recipe.name", "crt"])
    assert stages(config.recipe, 2, 10) == [
        Stage(0, 0, 7, examined=False), Stage(0, 7, 10, head=True, reset=True),
        Stage(1, 10, 17, examined=False), Stage(1, 17, 20, head=True, reset=True),
    ]  # fmt: skip
    assert stages(config.recipe, 2, 1) == [Stage(0, 0, 1), Stage(1, 1, 2)]
    plain = load_medical(CONFIG, [])
    assert stages(plain.recipe, 2, 10) == [Stage(0, 0, 10), Stage(1, 10, 20)]


def test_kept_momentum_makes_rounds_of_local_training_one_long_one() -> None:
    """ERM with one step a round and kept momentum is the same as four steps in one round."""
    many = Ran("erm", "--local.steps", "1", "--rounds", "4", "--scenario.tasks", "1")
    once = Ran("erm", "--local.steps", "4", "--rounds", "1", "--scenario.tasks", "1")
    reset = Ran("erm", "--local.steps", "1", "--rounds", "4", "--scenario.tasks", "1", "--recipe.momentum", "reset")
    own = [ran.engine.states.get(0)["_own"] for ran in (many, once, reset)]
    assert torch.equal(own[0], own[1])
    assert not torch.equal(own[0], own[2])


def test_kept_adam_too() -> None:
    adam = ("--local.optimizer", "adam", "--local.momentum", "0", "--local.lr", "0.01", "--scenario.tasks", "1")
    many, once = Ran("erm", "--local.steps", "1", *adam), Ran("erm", "--local.steps", "4", "--rounds", "1", *adam)
    assert torch.equal(many.engine.states.get(1)["_own"], once.engine.states.get(1)["_own"])


def test_local_models_differ_and_are_examined_one_by_one() -> None:
    ran = Ran("erm")
    models = [ran.engine.states.get(c)["_own"] for c in range(3)]
    assert not torch.equal(models[0], models[1])
    assert sorted(client for client, _, _ in ran.values("holdout_ltr")) == [0, 0, 1, 1, 2, 2]
    assert len({value for _, _, value in ran.values("holdout_loss")}) == 6
    assert len(ran.values("ltr")) == 2 * 3 * 2


def test_an_own_head_stays_and_the_rest_is_shared() -> None:
    ran = Ran("fedavg", "--recipe.head", "own")
    heads = [ran.engine.states.get(c)["_own"] for c in range(3)]
    size = sum(p.numel() for name, p in ran.model.named_parameters() if name in head_names(ran.model))
    assert {len(head) for head in heads} == {size}
    assert not torch.equal(heads[0], heads[1])
    assert {client for client, _, _ in ran.values("holdout_ltr")} == {0, 1, 2}


@pytest.mark.parametrize(
    "options",
    [
        ["--scenario.kind", "class_incremental"],
        ["--scenario.kind", "group_incremental"],
        ["--scenario.kind", "class_incremental", "--scenario.mode", "compat", "--recipe.name", "erm"],
        ["--scenario.holdout_fraction", "1.0", "--scenario.min_task_size", "0"],
        ["--scenario.holdout_fraction", "1.0", "--scenario.min_task_size", "0", "--recipe.name", "erm"],
    ],
    ids=" ".join,
)
def test_tasks_that_nobody_is_tested_on_are_told_of_and_do_not_end_the_run(options: list[str]) -> None:
    ran = Ran("cb", *options, "--rounds", "1")
    tests = ran.data.timeline.test
    tested = [any(len(tasks[t]) for tasks in tests) for t in range(ran.data.timeline.num_tasks)]
    untested = ", ".join(str(t + 1) for t, there in enumerate(tested) if not there)
    notes = [note for note in _medical.unused_settings(ran.config, ran.data) if note.startswith("no client has test")]
    wanted = f"no client has test samples of task {untested}: its scores are not a number"
    assert notes == ([wanted] if untested else [])
    found = [value for _, _, value in ran.values("client_accuracy_mean")]
    assert [not math.isnan(value) for value in found] == tested
    assert (ran.engine.progress.accuracy is not None) == tested[-1]


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "scaffold"])
def test_the_second_stage_moves_the_head_alone_and_begins_with_a_fresh_one(algorithm: str) -> None:
    ran = Ran("crt", "--algorithm.name", algorithm, "--local.momentum", "0" if algorithm == "scaffold" else "0.9")
    head = [slot.name in head_names(ran.model) for slot in ran.run.trainer.vector.layout]
    slots = ran.run.trainer.vector.layout
    for first, second in ((0, 1), (2, 3)):
        for slot, of_head in zip(slots, head, strict=True):
            before, after = (ran.after[i][slot.start : slot.stop] for i in (first, second))
            assert torch.equal(before, after) is not of_head
    moved = [not torch.equal(ran.after[1][s.start : s.stop], ran.after[2][s.start : s.stop]) for s in slots]
    assert all(moved), "the next task trains everything again"
    assert len(ran.values("holdout_ltr")) == 2, "exams are where tasks end"


def test_a_fresh_classifier_takes_the_place_of_the_clients_own() -> None:
    """With a head rate of almost nothing the second stage leaves the classifier as it was drawn."""
    still = ("--recipe.head", "own", "--recipe.head_share", "0.25", "--local.lr", "1e-30")
    fresh, kept = (Ran("crt", *still, "--recipe.reset", word) for word in ("true", "false"))
    heads = {name: [ran.engine.states.get(c)["_own"] for c in range(3)] for name, ran in
             (("fresh", fresh), ("kept", kept))}  # fmt: skip
    drawn = [p.detach().reshape(-1) for name, p in fresh.model.named_parameters() if name in head_names(fresh.model)]
    assert all(torch.equal(head, torch.cat(drawn)) for head in heads["fresh"])
    assert not any(torch.equal(a, b) for a, b in zip(heads["fresh"], heads["kept"], strict=True))


def test_compat_crt_trains_the_head_after_every_round() -> None:
    plain, compat = Ran("fedavg", "--rounds", "1"), Ran("crt", "--recipe.compat", "true", "--rounds", "1")
    slots = plain.run.trainer.vector.layout
    same = [torch.equal(plain.after[0][s.start : s.stop], compat.after[0][s.start : s.stop]) for s in slots]
    assert same == [s.name not in head_names(plain.model) for s in slots]
    assert all(p.requires_grad for p in compat.model.parameters())


def test_swad_is_the_mean_over_the_steps_since_the_last_evaluation() -> None:
    """One evaluation per task: all local steps, each client its own; the trained model is plain FedAvg's."""
    one = ("--recipe.evaluations", "1", "--recipe.num_converge", "1", "--scenario.tasks", "1")
    ran, plain = Ran("swad", *one), Ran("fedavg", "--scenario.tasks", "1")
    assert torch.equal(ran.after[0], plain.after[0])
    state = ran.engine.states.get(0)
    assert float(state["_swad_numbers"][2]) == 4 * 5, "steps in the open segment"
    assert {client for client, _, _ in ran.values("holdout_ltr")} == {0, 1, 2}
    assert ran.values("holdout_loss")[0][2] != plain.values("holdout_loss")[0][2]


@pytest.mark.parametrize("compat", [False, True])
def test_an_average_that_is_put_away_and_taken_up_goes_on_as_before(compat: bool) -> None:
    losses = [1.0, 0.5, 0.51, 0.52, 0.9, 0.95, 0.97]
    rule = Averaging(3, 4, 0.3, compat, 1)
    slots = max(rule.num_converge, rule.num_tolerance)
    draws = torch.randn(len(losses) * 2, 5, generator=torch.Generator().manual_seed(0))
    whole, broken = _Average(rule, slots), _Average(rule, slots)
    for number, loss in enumerate(losses):
        for draw in draws[2 * number : 2 * number + 2]:
            carried = broken.pack(0, draws[0])
            broken = _Average(rule, slots)
            broken.unpack(carried, torch.device("cpu"))
            whole.add(draw)
            broken.add(draw)
        whole.evaluated(loss)
        broken.evaluated(loss)
        assert torch.allclose(whole.swad.result(), broken.swad.result(), atol=1e-6)


@pytest.mark.parametrize("algorithm", ["fedprox", "feddyn", "scaffold", "fedadam", "fednova"])
@pytest.mark.parametrize("recipe", ["mixup", "swad", "er", "gb", "cb", "crt"])
def test_every_federated_recipe_goes_with_every_kind_of_rule(recipe: str, algorithm: str) -> None:
    few = ("--local.momentum", "0", "--rounds", "2", "--local.steps", "2")
    few = (*few, "--recipe.num_converge", "2") if recipe == "swad" else few
    ran, plain = Ran(recipe, "--algorithm.name", algorithm, *few), Ran(recipe, *few)
    assert ran.engine.progress.round == 4
    if algorithm != "fednova":  # with equally many steps everywhere it is FedAvg
        assert not torch.equal(ran.after[-1], plain.after[-1])
    assert len(ran.values("ltr")) == 2 * 3 * 2


def test_schedule_of_evaluations() -> None:
    schedule = Schedule(rounds=150, evaluations=3)
    assert [r for r in range(150) if schedule.due(r)] == [50, 100]
    assert (schedule.most, schedule.count) == (2, 3)
    assert Schedule(10, 3).most == 3
    assert Schedule(2, 5).most == 1


def test_a_valley_needs_as_many_evaluations_as_it_is_judged_by() -> None:
    for words in (["--rounds", "2"], ["--recipe.evaluations", "2"], ["--recipe.num_converge", "11"]):
        with pytest.raises(ConfigError, match=r"recipe.evaluations gives \d+ to a task of \d+ rounds"):
            load_medical(CONFIG, ["--recipe.name", "swad", *words])
        assert load_medical(CONFIG, ["--recipe.name", "swad", "--recipe.compat", "true", *words]).recipe.averaging
    for words, count in ((["false"], 10), (["true"], 3), (["true", "--recipe.evaluations", "1"], 1)):
        config = load_medical(CONFIG, ["--recipe.name", "swad", "--recipe.compat", *words])
        assert config.recipe.averaging.evaluations == count
        assert config.to_dict()["recipe"]["evaluations"] == count, "config.yaml says it"
    for path in sorted(REPOSITORY.glob("configs/**/medical/*.yaml")):
        if path.stem.rpartition("_")[2] not in ("study", "table", "folders"):
            config = load_medical(str(path), ["--recipe.name", "swad"])
            assert Schedule(config.rounds, config.recipe.evaluations).count >= 8


def test_pixels_are_read_when_they_are_used() -> None:
    ran = Ran("cb", "--scenario.tasks", "1")
    clients = ran.run._task(0)
    samples, whole = clients.train(0), clients.read(ran.data.timeline.train[0][0])
    assert len(samples) == len(whole)
    index = torch.tensor([3, 0, 3])
    assert torch.equal(samples.x[index], whole.x[index])
    assert torch.equal(samples.x[2:5], whole.x[2:5])
    assert torch.equal(samples.y, whole.y)
