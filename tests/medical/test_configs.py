"""The configurations that come with the package can be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedhpc.commands._configs import load_run
from fedhpc.config import from_tree, plan_study, read_yaml
from fedhpc.data._units import three_parts
from fedhpc.data.sources.joined import JoinedSpec
from fedhpc.data.sources.medical_table import TableSpec
from fedhpc.data.stores import open_store
from fedhpc.data.table import SampleTable
from fedhpc.medical.config import load_medical
from fedhpc.report.medical import TITLES
from tests.conftest import REPOSITORY

CONFIGS = sorted((REPOSITORY / "configs" / "medical").glob("*.yaml"))
SMOKE = REPOSITORY / "configs" / "smoke"


@pytest.mark.parametrize("path", CONFIGS, ids=[path.stem for path in CONFIGS])
def test_config_is_read(path: Path) -> None:
    if path.stem.endswith("_table"):
        assert from_tree(TableSpec, read_yaml(str(path)), str(path)).label
        return
    if path.stem.endswith("_folders"):
        assert len(from_tree(JoinedSpec, read_yaml(str(path)), str(path)).folders) == 3
        return
    if path.stem.endswith("_study"):
        planned = plan_study([str(path)], [], load_run)
        if path.stem.endswith("_lr_study"):
            assert [run.config.local.lr for run in planned] == [0.005, 0.001, 0.0005, 0.0001]
            assert {(run.config.scenario_kind, run.config.scenario.clients) for run in planned} == {("naive", 1)}
            return
        assert {run.config.recipe_name for run in planned} == set(TITLES)
        assert len(planned) == 2 * len(TITLES)
        return
    config = load_medical(str(path))
    assert config.scenario.clients >= 3
    assert config.local.steps == 5
    assert config.algorithm.weighting == "uniform", "the paper averages all clients alike"


PAPER_SIZES: dict[str, tuple[int, int, tuple[float, ...], float]] = {
    "papila": (244, 2, (0.68, 0.18, 0.14), 0.3),
    "ol3i": (8139, 1, (0.956, 0.044), 0.36),
    "ham10000": (7414, 1, (0.033, 0.051, 0.11, 0.012, 0.111, 0.669, 0.014), 0.2),
    "fitzpatrick17k": (16012, 1, (0.135, 0.135, 0.73), 0.2),
    "chexpert": (64539, 3, (0.9, 0.1), 0.2),
    "chexcovid": (1900, 2, (0.83, 0.093, 0.077), 0.2),
    "chexcovid_novel": (1900, 2, (0.83, 0.093, 0.077), 0.2),
}
"""Units, images of each, shares of the classes and of the units that do not train."""


@pytest.mark.parametrize("name", PAPER_SIZES)
def test_the_papers_scenarios_work_on_datasets_of_the_papers_sizes(name: str) -> None:
    units, images, shares, rest = PAPER_SIZES[name]
    rng = np.random.default_rng(0)
    label, old = rng.choice(len(shares), units, p=shares), rng.random(units) < 0.5
    split = three_parts([f"{u:07d}" for u in range(units)], rest)
    attributes = {"age": np.where(old, 70.0, 40.0), "skin_binary": old.astype(np.int32), "unit": np.arange(units)}
    every = {name: np.repeat(values, images) for name, values in attributes.items()}
    table = SampleTable(
        np.repeat(label, images), np.zeros(units * images, np.int64), np.repeat(split, images), every,
        tuple(map(str, range(len(shares)))), ("x",),
    )  # fmt: skip
    config = load_medical(str(REPOSITORY / "configs" / "medical" / f"{name}.yaml"))
    timeline = config.scenario.timeline(table, config.seed)
    assert timeline.shared_units(every["unit"]) == 0
    assert timeline.duplicates()["test in hold-out"] == timeline.duplicates()["train in another part"] == 0
    sizes = [len(rows) for client in timeline.test for rows in client]
    assert min(sizes) >= (3 if name == "chexcovid_novel" else 8), "or scores of single tasks say nothing"
    assert len(np.unique(table.labels[timeline.holdout])) == len(shares)


def test_the_smoke_study_has_every_recipe_with_two_seeds() -> None:
    planned = plan_study([str(SMOKE / "medical.yaml")], ["--rounds", "3"], load_run)
    assert {run.name for run in planned} == {f"{recipe}-seed{seed}" for recipe in TITLES for seed in (0, 1)}
    assert {run.config.recipe_name for run in planned} == set(TITLES)
    assert {run.config.rounds for run in planned} == {3}


def test_the_chest_xrays_make_a_novel_disease_study(shared_data: Path, tmp_path: Path) -> None:
    from fedhpc.data.prepare import prepare

    spec = read_yaml(str(REPOSITORY / "configs" / "medical" / "chest_xray_table.yaml"))
    spec["root"] = str(shared_data / "chest-xray")
    (tmp_path / "table.yaml").write_text("\n".join(f"{k}: {v}" for k, v in spec.items()))
    prepare("medical_table", tmp_path / "table.yaml", tmp_path / "out", size=24, channels=1)
    config = load_medical(
        str(REPOSITORY / "configs" / "medical" / "chest_xray_novel.yaml"), ["--data.root", str(tmp_path / "out")]
    )
    store = open_store("medical_table", tmp_path / "out")
    timeline = config.scenario.timeline(store.table, config.seed)
    assert set(timeline.duplicates().values()) == {0}
    assert timeline.shared_units(store.table.attributes["unit"]) == 0
    assert timeline.kinds == ("equal/rapid", "equal/rapid", "equal/slow")
    for client, tasks in enumerate(timeline.train):
        shares = [(store.table.labels[rows] == 2).mean() for rows in tasks]
        assert abs(shares - config.scenario.prevalence(client)).max() < 0.06
