"""Tasks in sequence as one run of the real engine each: state goes on, scores come once per task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedhpc import registry
from fedhpc.comm.world import SoloWorld
from fedhpc.commands import _federation as build
from fedhpc.data.stores import open_store
from fedhpc.federated.cohorts import ListedCohorts
from fedhpc.federated.engine import Engine
from fedhpc.medical.config import MedicalConfig, load_medical
from fedhpc.medical.exam import TaskExam
from fedhpc.medical.task_data import TaskData, TaskRows
from fedhpc.models.base import ModelOptions
from fedhpc.report.medical import MedicalRun, fill
from fedhpc.runs.records import Record
from tests.conftest import REPOSITORY

CONFIG = str(REPOSITORY / "configs" / "smoke" / "medical" / "cb.yaml")
WHERE = ("client", "task", "model")


class Kept:
    """A sink that keeps records in memory."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def record(self, what: str, value: float, unit: str, round: int, seconds: float, **where: Any) -> None:
        known = {name: at for name, at in where.items() if name in WHERE}
        self.records.append(Record(what, value, unit, round, seconds, **known))

    def round_done(self, *_: Any) -> None: ...

    def evaluated(self, *_: Any) -> None: ...


def run_tasks(config: MedicalConfig, tasks: int | None = None) -> tuple[Engine, list[Record], Any]:
    """Every task is a run of the engine that goes on where the last one ended."""
    store = open_store(config.data.dataset, None)
    table, device = store.table, torch.device("cpu")
    timeline = config.scenario.timeline(table, config.seed)
    rows = TaskRows(timeline, table.labels, config.recipe.memory, config.seed)
    torch.manual_seed(0)
    model = registry.load("fedhpc.models", "mlp").MODEL((1, 8, 8), table.num_classes, ModelOptions((32,)))
    plain = replace(config, local=replace(config.local, objective=config.recipe.objective))
    data = build.OpenedData(store, timeline.partition(0))
    trainer = build.build_trainer(plain, model, build.build_transform(config, store), data)
    trainer.batches = config.recipe.batches(rows.setting(config.local.batch_size, config.local.steps, config.rounds))
    cohorts = ListedCohorts([timeline.present(t) for t in range(timeline.num_tasks) for _ in range(config.rounds)])
    sink, engine = Kept(), None
    for task in range(tasks or timeline.num_tasks):
        clients = TaskData(store, table.labels, timeline, rows, task, device)
        exam = TaskExam(timeline, table.labels, clients.read, config.rounds, 64)
        settings = replace(
            build.engine_settings(config), rounds=(task + 1) * config.rounds, evaluate_every=config.rounds
        )
        following = Engine(SoloWorld(), config.algorithm, trainer, clients, cohorts, settings, sink, exam=exam)
        if engine is not None:
            following.server, following.progress, following.states = engine.server, engine.progress, engine.states
        following.run()
        engine = following
    assert engine is not None
    return engine, sink.records, (timeline, table, trainer, exam)


@pytest.mark.parametrize("recipe", ["fedavg", "cb", "gb", "er", "mixup"])
def test_a_recipe_learns_over_tasks(recipe: str) -> None:
    config = load_medical(CONFIG, ["--recipe.name", recipe, "--rounds", "6"])
    engine, records, (timeline, _, _, _) = run_tasks(config)
    assert engine.progress.round == 4 * 6
    run = MedicalRun("x", recipe, "fedavg", "medical_digits", 0)
    fill(run, records)
    assert {m.shape for m in run.local["ltr"].values()} == {(4, 4)}
    assert len(run.local["ltr"]) == timeline.num_clients
    assert run.holdout["holdout_ltr"][None].shape == (4,)
    assert run.final_holdout("accuracy") > 0.3
    assert 0.5 < run.final_holdout("auc") <= 1.0


def test_the_parts_of_an_exam_are_the_whole_one() -> None:
    config = load_medical(CONFIG, ["--rounds", "2"])
    engine, _, (_, _, trainer, exam) = run_tasks(config, tasks=1)
    sinks = []
    for shares in (1, 3):
        sink = Kept()
        answers = [exam.evaluate(trainer, share, shares) for share in range(shares)]
        assert sum(len(indices) for indices, _ in answers) == len(np.unique(np.concatenate([i for i, _ in answers])))
        exam.record(sink, engine.progress, answers)
        sinks.append([(r.what, r.client, r.task, r.value) for r in sink.records])
    assert repr(sinks[0]) == repr(sinks[1])


def test_batches_of_an_exam_do_not_depend_on_the_number_of_ranks() -> None:
    config = load_medical(CONFIG, ["--rounds", "2"])
    _, _, (_, _, trainer, exam) = run_tasks(config, tasks=1)
    seen: list[bytes] = []
    predict = trainer.objective.predict

    def noting(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.contiguous().numpy().tobytes())
        return predict(x)

    trainer.objective.predict = noting
    batches = []
    for shares in (1, 2, 3, 50):
        seen.clear()
        for share in range(shares):
            exam.evaluate(trainer, share, shares)
        batches.append(sorted(seen))
    assert len(batches[0]) > 1
    assert all(found == batches[0] for found in batches)


def test_another_federated_algorithm_goes_with_a_recipe() -> None:
    for algorithm in ("scaffold", "feddyn", "fedprox"):
        words = ["--algorithm.name", algorithm, "--recipe.name", "cb", "--rounds", "2", "--local.momentum", "0"]
        engine, _, _ = run_tasks(load_medical(CONFIG, words), tasks=2)
        assert engine.progress.round == 4


def test_the_end_of_a_task_predicts_every_test_image_once_and_no_more() -> None:
    config = load_medical(CONFIG, ["--rounds", "2"])
    engine, _, (timeline, _, trainer, _) = run_tasks(config, tasks=1)
    predicted: list[int] = []
    predict = trainer.objective.predict

    def counting(x: torch.Tensor) -> torch.Tensor:
        predicted.append(len(x))
        return predict(x)

    trainer.objective.predict = counting
    engine._broadcast(engine._down.order)
    engine._examiner.examine(engine.snapshot(), engine.placement, engine._down, Kept(), lambda: False)
    tested = np.concatenate([*(rows for tasks in timeline.test for rows in tasks), timeline.holdout])
    assert sum(predicted) == len(np.unique(tested))


def test_a_clients_accuracy_is_the_one_on_the_task_that_has_ended() -> None:
    config = load_medical(CONFIG, ["--rounds", "2"])
    _, records, (timeline, _, _, _) = run_tasks(config, tasks=2)
    for task, round in enumerate((2, 4)):
        own = {r.client: r.value for r in records if r.what == "client_accuracy" and r.round == round}
        scored = {
            r.client: r.value
            for r in records
            if r.what == "accuracy" and r.round == round and r.task == task and r.client is not None
        }
        assert len(own) == timeline.num_clients
        assert own == scored
