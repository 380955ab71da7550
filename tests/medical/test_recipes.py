"""Recipes: each gives batches for every client and task, and says what the paper says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedhpc import registry
from fedhpc.config import to_tree
from fedhpc.data.stores import open_store
from fedhpc.errors import ConfigError
from fedhpc.medical.config import RECIPES, MedicalConfig, load_medical
from fedhpc.medical.longtail import reset_head
from fedhpc.medical.swad import Swad
from fedhpc.medical.task_data import TaskData, TaskRows
from fedhpc.models.base import ModelOptions
from fedhpc.report.medical import TITLES
from tests.conftest import REPOSITORY

CONFIG = str(REPOSITORY / "configs" / "smoke" / "medical" / "cb.yaml")


@pytest.fixture(scope="module")
def store():  # type: ignore[no-untyped-def]
    return open_store("medical_digits", None)


def config_of(*options: str) -> MedicalConfig:
    return load_medical(CONFIG, options)


def test_all_recipes_are_there_under_the_papers_names() -> None:
    found = {name: registry.load(RECIPES, name).RECIPE.title for name in registry.names(RECIPES)}
    assert found == TITLES


@pytest.mark.parametrize("name", registry.names(RECIPES))
def test_every_recipe_gives_batches_for_every_task(name: str, store) -> None:  # type: ignore[no-untyped-def]
    config = config_of("--recipe.name", name)
    recipe = config.recipe
    timeline = config.scenario.timeline(store.table, config.seed)
    rows = TaskRows(timeline, store.table.labels, recipe.memory, config.seed)
    plan = recipe.batches(rows.setting(config.local.batch_size, config.local.steps, config.rounds))
    for task in range(timeline.num_tasks):
        data = TaskData(store, store.table.labels, timeline, rows, task, torch.device("cpu"))
        for client in range(timeline.num_clients):
            samples = data.train(client)
            batches = list(plan.batches(client, task * config.rounds, len(samples.y)))
            assert len(batches) == config.local.steps
            assert max(int(b.max()) for (b,) in batches) < len(samples.y)
            own = timeline.train[client][task]
            assert samples.y[: len(own)].tolist() == store.table.labels[own].tolist()
            assert data.num_train[client] == len(own)
    registry.load("fedhpc.objectives", recipe.objective)


def test_a_config_survives_its_own_yaml() -> None:
    for name in registry.names(RECIPES):
        algorithm = "fedavg" if name == "erm" else "scaffold"
        words = ("--recipe.name", name, "--scenario.kind", "novel_disease", "--algorithm.name", algorithm)
        config = config_of(*words, "--local.momentum", "0")
        assert MedicalConfig.from_dict(config.to_dict()) == config
        assert to_tree(config)["recipe"]["name"] == name


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--partition.kind", "iid"), "partition"),
        (("--local.steps", "null"), "local.steps"),
        (("--recipe.name", "er", "--recipe.capacity", "0"), "capacity"),
        (("--recipe.name", "cbb"), "cbb"),
        (("--recipe.name", "erm", "--algorithm.name", "scaffold", "--local.momentum", "0"), "weights of their own"),
        (("--recipe.head", "own", "--algorithm.name", "feddyn", "--local.momentum", "0"), "weights of their own"),
        (("--local.objective", "batch_mixup"), "brings its own"),
        (("--cohort.size", "2"), "cohort"),
        (("--recipe.name", "crt", "--rounds", "1"), "crt ends each task with rounds of the classifier alone"),
    ],
)
def test_wrong_medical_settings_are_refused(options: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        config_of(*options)


def test_a_batch_without_room_for_the_task_is_refused(store) -> None:  # type: ignore[no-untyped-def]
    config = config_of("--recipe.name", "er", "--recipe.share", "1.0")
    timeline = config.scenario.timeline(store.table, 0)
    rows = TaskRows(timeline, store.table.labels, config.recipe.memory, 0)
    with pytest.raises(ConfigError, match="no room"):
        config.recipe.batches(rows.setting(10, 5, 10))


def test_second_stage_of_crt() -> None:
    stage = config_of("--recipe.name", "crt").recipe.head_stage(10)
    assert (stage.first_round, stage.reset, stage.balanced) == (7, True, True)
    assert config_of("--recipe.name", "crt", "--recipe.head_share", "0.99").recipe.head_stage(10).first_round == 1
    compat = config_of("--recipe.name", "crt", "--recipe.compat", "true").recipe.head_stage(10)
    assert (compat.first_round, compat.reset, compat.balanced) == (None, False, False)
    assert config_of("--recipe.name", "cb").recipe.head_stage(10) is None


def test_a_fresh_head_is_the_same_in_all_clients_and_leaves_the_rest() -> None:
    model = registry.load("fedhpc.models", "mlp").MODEL((1, 8, 8), 10, ModelOptions())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    heads = []
    for _ in range(2):
        reset_head(model, torch.Generator().manual_seed(7))
        heads.append(model.classifier.weight.detach().clone())
    assert torch.equal(*heads)
    assert not torch.equal(heads[0], before["classifier.weight"])
    assert heads[0].abs().max() <= model.num_features**-0.5
    for name, value in model.state_dict().items():
        assert name.startswith("classifier.") or torch.equal(value, before[name])


def test_swad_averages_every_step_of_the_valley_once() -> None:
    """The defects of the original: segments counted alike, the first overwritten, some twice."""
    rng = np.random.default_rng(0)
    losses = [1.0, 0.5, 0.51, 0.52, 0.9, 0.95, 0.97, 0.99]
    steps = [1, 2, 3, 4, 5, 6, 7, 8]
    swad: Swad[float] = Swad(num_converge=3, num_tolerance=3, tolerance=0.3)
    weights = []
    for loss, count in zip(losses, steps, strict=True):
        segment = rng.random(count).tolist()
        for w in segment:
            swad.add(w)
        weights.append(segment)
        swad.evaluated(loss)
    # the valley starts at the second evaluation; the threshold is 1.3 * 0.51; it ends where three losses exceed it
    inside = weights[1] + weights[2] + weights[3]
    assert swad.ended
    assert swad.result() == pytest.approx(np.mean(inside), rel=1e-12)


def test_swad_before_a_valley_is_the_latest_segment() -> None:
    swad: Swad[float] = Swad()
    with pytest.raises(ValueError, match="no evaluation"):
        swad.result()
    for value, loss in ((1.0, 0.9), (5.0, 0.8)):
        swad.add(value)
        swad.evaluated(loss)
    assert swad.result() == 5.0


def test_swad_of_a_rising_loss_is_everything_until_it_ends() -> None:
    swad: Swad[float] = Swad()
    for value, loss in ((1.0, 0.80), (2.0, 0.81), (4.0, 0.82)):
        swad.add(value)
        swad.evaluated(loss)
    assert swad.result() == pytest.approx(7 / 3)
