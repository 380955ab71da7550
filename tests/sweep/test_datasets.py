"""The datasets of a sweep: sources by name, and folders of one's own images by any name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedhpc.config import from_tree, load
from fedhpc.data.writer import ShardWriter
from fedhpc.errors import ConfigError, DatasetError
from fedhpc.sweep.datasets import facts_of, open_dataset, published_facts
from fedhpc.sweep.estimate import DatasetFacts
from fedhpc.sweep.plan import make_plan, num_trials
from fedhpc.sweep.run_trial import run_trial
from fedhpc.sweep.settings import SweepConfig
from fedhpc.sweep.stored import without_copies
from tests.raw_layouts import pixels
from tests.sweep.trials import Kept

SHAPE, NUM = (6, 6, 3), 30


def write(out: Path, name: str = "image_folder", filled: int = 3) -> Path:
    with ShardWriter(
        out, name=name, classes=["a", "b"], environments=["e", "f", "g"], shape=SHAPE, expected=NUM, attributes={}
    ) as writer:
        for i, image in enumerate(pixels(3, NUM, *SHAPE)):
            writer.add(image, label=i % 2, environment=i % filled, split=255, path=f"{i}.png", attributes={})
    return out


def test_two_folders_of_ones_own_images_in_one_sweep(tmp_path: Path) -> None:
    roots = {name: str(write(tmp_path / name)) for name in ("mine", "yours")}
    tree = {"datasets": roots, "algorithms": ["erm"], "n_hparams": 1, "n_trials": 1, "steps": 2}
    config = from_tree(SweepConfig, {"sweep": {**tree, "hparams": {"batch_size": 2}}}, "test")
    stores = {name: open_dataset(name, root) for name, root in config.sweep.roots.items()}
    plan = make_plan(config, {name: facts_of(store) for name, store in stores.items()})
    assert len(plan.trials) == 2 * 6
    assert {t.folder.split("/")[1] for t in plan.trials} == {"mine", "yours"}
    assert run_trial(plan.trials[0], stores[plan.trials[0].dataset], Kept()) is not None


def test_an_environment_without_samples_is_refused_before_any_trial(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="environment g of image_folder has no samples"):
        facts_of(open_dataset("mine", str(write(tmp_path / "mine", filled=2))))


def test_a_prepared_dataset_keeps_its_name(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="holds the dataset 'pacs'; call it so"):
        open_dataset("mine", str(write(tmp_path / "mine", "pacs")))
    with pytest.raises(DatasetError, match="holds the dataset 'image_folder', the config asks for 'pacs'"):
        open_dataset("pacs", str(write(tmp_path / "own")))


def test_the_study_can_be_counted_before_its_data_are_there() -> None:
    config = load(SweepConfig, str(Path(__file__).resolve().parents[2] / "configs" / "sweep" / "domainbed.yaml"))
    found = {name: published_facts(name) for name in config.sweep.roots}
    facts = {name: known for name, known in found.items() if known is not None}
    assert num_trials(config, {name: len(known.environments) for name, known in facts.items()}) == 47_520
    totals = {name: sum(known.sizes) for name, known in facts.items()}
    assert totals == {
        "colored_mnist": 70_000, "rotated_mnist": 70_000, "vlcs": 10_729, "pacs": 9_991, "office_home": 15_588,
        "terra_incognita": 0, "domain_net": 586_575,
    }  # fmt: skip
    assert facts["colored_mnist"] == DatasetFacts(("+90%", "+80%", "-90%"), (23_334, 23_333, 23_333), 28, 28, 2)
    assert published_facts("image_folder") is published_facts("mine") is published_facts("digits") is None


def test_what_is_not_embedded_needs_a_folder() -> None:
    with pytest.raises(ConfigError, match=r"sweep\.datasets\.pacs: is not embedded.*fedhpc prepare pacs"):
        open_dataset("pacs", None)


def test_a_sweep_keeps_the_folder_that_a_job_staged_its_data_from(tmp_path: Path) -> None:
    """Two jobs that work on one sweep do not see each other's node-local disks."""
    source, copy, moved = write(tmp_path / "mine"), tmp_path / "local" / "mine", tmp_path / "moved"
    shutil.copytree(source, copy)
    shutil.copytree(source, moved)
    yaml = tmp_path / "s.yaml"

    def kept(first: object, *words: object) -> str | None:
        yaml.write_text(f"sweep: {{datasets: {{mine: {first}}}}}\n", encoding="utf-8")
        overrides = [str(word) for word in words]
        config = load(SweepConfig, str(yaml), overrides)
        return without_copies(config, str(yaml), overrides).sweep.roots["mine"]

    option = "--sweep.datasets.mine"
    assert kept(source) == str(source)
    assert kept(source, option, copy) == kept(source, f"{option}={copy}", "--sweep.steps", 3) == str(source)
    assert kept(tmp_path / "gone", option, moved, option, copy) == str(moved), "both on the command line"
    assert kept(tmp_path / "gone", option, copy) == str(copy), "nothing else holds the data"
    (moved / "manifest.json").write_text("{}", encoding="utf-8")
    assert kept(moved, option, copy) == str(copy), "other data"
