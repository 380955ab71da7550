"""Clients of datasets with different classes share a backbone: heads of different sizes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fedhpc.comm.world import SoloWorld
from fedhpc.commands import _medical
from fedhpc.config import read_yaml
from fedhpc.data.fingerprint import fingerprint
from fedhpc.data.partition import TEST, TRAIN
from fedhpc.data.partitions.by_environment import ByEnvironment
from fedhpc.data.prepare import prepare, verify
from fedhpc.data.shards import ShardStore
from fedhpc.data.timeline import PARTS
from fedhpc.data.writer import ShardWriter
from fedhpc.errors import ConfigError, DataRequestError
from fedhpc.medical.config import load_medical
from fedhpc.medical.scenarios.naive import Naive
from tests.conftest import REPOSITORY
from tests.medical.test_carried import Ran

CONFIG = REPOSITORY / "configs" / "smoke" / "medical_joined.yaml"


def write_small(folder: Path, num: int = 120, size: int = 8) -> None:
    """Three classes told apart by brightness, ages, no units."""
    rng = np.random.default_rng(0)
    with ShardWriter(
        folder, name="small", classes=("a", "b", "c"), environments=("here",), shape=(size, size, 1), expected=num,
        pixel_max=16, attributes={"age": None},
    ) as writer:  # fmt: skip
        for i in range(num):
            image = np.full((size, size, 1), 2 + 5 * (i % 3), np.uint8)
            age = float(rng.integers(20, 90)) if i else None
            writer.add(image, label=i % 3, environment=0, split=TEST if i % 5 == 0 else TRAIN, path=str(i),
                       attributes={"age": age})  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("joined")
    prepare("medical_digits", None, root / "medical_digits")
    write_small(root / "small")
    (root / "joined.yaml").write_text("folders: [medical_digits, small]\ngroups: [age, age]\n")
    prepare("joined", root / "joined.yaml", root / "out")
    return root


def test_samples_classes_units_and_groups_stand_side_by_side(folder: Path) -> None:
    assert verify(folder / "out") == []
    whole, digits, small = (ShardStore.open(folder / name) for name in ("out", "medical_digits", "small"))
    table = whole.table
    assert table.class_names[-4:] == ("medical_digits/9", "small/a", "small/b", "small/c")
    assert table.num_samples == digits.table.num_samples + 120
    assert np.bincount(table.environment).tolist() == [digits.table.num_samples, 120]
    assert (table.labels[-120:] == 10 + small.table.labels).all()
    assert (table.split[:-120] == digits.table.split).all()
    rows = np.array([3, 800])
    assert np.array_equal(whole.images(rows)[1], small.images(rows[1:] - digits.table.num_samples)[0])
    units = table.attributes["unit"]
    assert len(np.unique(units[-120:])) == 120, "a sample without a unit is its own"
    assert len(np.unique(units[:-120])) == len(np.unique(digits.table.attributes["unit"]))
    old = [*(digits.table.attributes["age"] >= 60), *(small.table.attributes["age"] >= 60)]
    group = table.attributes["group"]
    assert group[-120] == -1, "an age that is not known"
    assert (group == np.where(group < 0, -1, old)).all()


def rows_of(ran: Ran) -> list[Tensor]:
    """Every client's classifier: weights and bias of each class."""
    heads = [ran.engine.states.get(client)["_own"] for client in range(ran.data.timeline.num_clients)]
    return [torch.cat([head[:-13].view(13, -1), head[-13:, None]], 1) for head in heads]


@pytest.mark.parametrize("recipe", ["fedavg", "swad", "erm"])
def test_each_client_trains_and_answers_with_its_datasets_classes(folder: Path, recipe: str) -> None:
    options = ["--data.dataset", "joined", "--data.root", str(folder / "out"), "--scenario.groups", "[group]",
               "--scenario.by_environment", "true", "--recipe.classes", "environment"]  # fmt: skip
    ran = Ran(recipe, *options, *(["--recipe.head", "own"] if recipe != "erm" else []))
    table = ran.data.store.table
    absent = {client: value for client, _, value in ran.values("holdout_absent_classes")}
    known = {0: set(range(10)), 1: {10, 11, 12}}
    still = ("--recipe.head", "own", "--rounds", "1", "--scenario.tasks", "1", "--local.lr", "1e-30")
    drawn = rows_of(Ran("fedavg", *options, *still)) if recipe != "erm" else None
    for client, tasks in enumerate(ran.data.timeline.train):
        parts = (tasks, ran.data.timeline.validation[client], ran.data.timeline.test[client])
        ((place,),) = {tuple(set(table.environment[np.concatenate(part)].tolist())) for part in parts}
        assert absent[client] >= 13 - len(known[place])
        if drawn is None:
            continue
        unknown = sorted(set(range(13)) - known[place])
        moved = (rows_of(ran)[client] != drawn[client]).any(1)
        assert not moved[unknown].any()
        assert moved[sorted(known[place])].all()
    for what in ("loss", "holdout_loss"):
        losses = [value for _, _, value in ran.values(what)]
        assert max(losses) < 20, "no sample of a class that the client does not have is asked"


def test_a_run_says_which_data_it_had_wherever_they_lie_and_are_held(folder: Path) -> None:
    told: list[str] = []
    shutil.copytree(folder / "out", folder / "copy", dirs_exist_ok=True)
    for place, memory in (("out", "mapped"), ("copy", "copy")):
        config = load_medical(str(CONFIG), ["--data.root", str(folder / place), "--data.memory", memory])
        tree = _medical.report_of(config, _medical.open_data(SoloWorld(), config))
        told.append(tree["data"])
        assert {tuple(known) for known in tree["client_classes"]} == {tuple(range(10)), (10, 11, 12)}
    assert told == [fingerprint(ShardStore.open(folder / "out"))] * 2


def test_patients_of_two_folders_are_the_same_where_that_is_said(folder: Path) -> None:
    """Then each belongs to the folder with most of its images, as with sites of one dataset."""
    digits = ShardStore.open(folder / "medical_digits")
    names, others = digits.manifest.attributes["unit"]["values"], [f"other{i}" for i in range(20)]
    with ShardWriter(
        folder / "again", name="again", classes=("few",), environments=("x",), shape=(8, 8, 1), expected=50,
        pixel_max=16, attributes={"unit": (*names, *others), "age": None},
    ) as writer:  # fmt: skip
        for i in range(50):  # four images of the first patient, who has three digits; at most three of nine more
            unit = others[i % 20] if i >= 30 else names[0] if i < 4 else names[1 + i % 9]
            image = np.full((8, 8, 1), i % 16, np.uint8)
            writer.add(image, label=0, environment=0, path=str(i), attributes={"unit": unit, "age": 50.0})
    for same in ("", "same_units: [medical_digits, again]"):
        (folder / "both.yaml").write_text(f"folders: [medical_digits, again]\ngroups: [age, age]\n{same}\n")
        manifest = prepare("joined", folder / "both.yaml", folder / f"both-{bool(same)}")
        table = ShardStore.open(folder / f"both-{bool(same)}").table
        units = table.attributes["unit"]
        assert len(np.unique(units)) == len(manifest.attributes["unit"]["values"]) == len(names) + (20 if same else 30)
        timeline = Naive(clients=3, by_environment=True, mixed=False, tasks=1, groups=("group",)).timeline(table, 0)
        assert timeline.shared_units(units, PARTS) == 0
        told = [note for note in timeline.notes if "10 units have samples in several environments" in note]
        assert len(told) == bool(same)
    assert timeline.unused["units in several environments: in another environment than most of their unit"] == 29
    partition = ByEnvironment().split(table, 0)
    owners = [set(units[np.concatenate(rows)].tolist()) for rows in zip(partition.train, partition.test, strict=True)]
    assert not owners[0] & owners[1]


def test_what_does_not_fit_is_refused(folder: Path) -> None:
    for words in (["--scenario.by_environment", "false"], ["--recipe.head", "shared"]):
        with pytest.raises(ConfigError, match=r"recipe\.classes:? environment needs"):
            load_medical(str(CONFIG), words)
    write_small(folder / "large", num=10, size=9)
    for text, told in (
        ("folders: [small, large]", "differ in shape"),
        ("folders: [small]", "two or more"),
        ("folders: [small, medical_digits]\ngroups: [age, skin]", "no attribute 'skin'"),
        ("folders: [small, medical_digits]\ngroups: [age]", "names 1 attributes for 2 folders"),
        ("folders: [small, medical_digits]\nsame_units: [small, digits]", "same_units must name two or more of small"),
    ):
        (folder / "bad.yaml").write_text(text)
        with pytest.raises(DataRequestError, match=told):
            prepare("joined", folder / "bad.yaml", folder / "bad")


def test_the_smoke_configuration_is_read() -> None:
    config = load_medical(str(CONFIG))
    assert config.scenario.by_environment
    assert read_yaml(str(CONFIG.with_name("medical_joined_folders.yaml")))["folders"][1].endswith("smoke/digits")
