"""The novel-disease scenario: prevalence, shares of the new class, small pools."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedhpc import registry
from fedhpc.cli import main
from fedhpc.comm.world import SoloWorld
from fedhpc.commands import _medical
from fedhpc.data.table import SampleTable
from fedhpc.medical.config import SCENARIOS, load_medical
from tests.conftest import REPOSITORY
from tests.medical.scenario_tables import TABLE, make, make_table, small_table, used


def test_novel_disease_has_the_wanted_prevalence_in_any_number_of_tasks() -> None:
    for tasks in (2, 4, 6):
        scenario = registry.load(SCENARIOS, "novel_disease").SCENARIO(
            clients=4, tasks=tasks, rapid=2, holdout_fraction=0.2
        )
        timeline = scenario.timeline(TABLE, 0)
        assert [k.split("/")[1] for k in timeline.kinds] == ["rapid", "rapid", "slow", "slow"]
        for client, rows in enumerate(timeline.train):
            found = [(TABLE.labels[r] == 2).mean() for r in rows]
            assert np.abs(found - scenario.prevalence(client)).max() < 0.05
        assert all((TABLE.labels[r] == 2).any() for c in timeline.test for r in c)


def test_a_small_pool_does_not_go_to_the_first_clients() -> None:
    """Ten classes of few patients of three images: the first unit of each went to client 0."""
    table = small_table(classes=10, patients_per_class=12)
    for seed in range(5):
        timeline = make("novel_disease", table, seed, clients=5, holdout_fraction=0.0)
        tested = [sum(map(len, tasks)) for tasks in timeline.test]
        assert max(tested) - min(tested) <= 2 * 3, tested
    for seed in range(5):
        timeline = make("novel_disease", make_table(patients=200), seed, clients=5)
        tested = [sum(map(len, tasks)) for tasks in timeline.test]
        assert max(tested) - min(tested) <= 4, tested


@pytest.mark.parametrize("mixed", [False, True])
def test_every_client_gets_its_share_of_the_new_class(mixed: bool) -> None:
    rare = np.where(np.arange(TABLE.num_samples) % 7, TABLE.labels % 2, TABLE.labels)
    table = SampleTable(rare, TABLE.environment, TABLE.split, TABLE.attributes, TABLE.class_names)
    for seed in range(3):
        timeline = make("novel_disease", table, seed, clients=5, rapid=5, mixed=mixed, unit="", tasks=2,
                        rapid_prevalence=(0.04, 0.04))  # fmt: skip
        new = [sum(int((rare[rows] == 2).sum()) for rows in tasks) / sum(map(len, tasks)) for tasks in timeline.train]
        assert max(new) - min(new) < 0.02, new


@pytest.mark.parametrize("local_tests", ["split", "shared"])
def test_every_test_task_has_the_new_class(local_tests: str) -> None:
    """Also where each draws from all test samples, and the training task's share of it is 0."""
    timeline = make("novel_disease", clients=3, local_tests=local_tests)
    for tasks in (*timeline.test, *timeline.validation):
        shares = np.array([(TABLE.labels[rows] == 2).mean() for rows in tasks])
        assert np.abs(shares - 0.3).max() < 0.2


def test_named_speeds_and_prevalences() -> None:
    timeline = make(
        "novel_disease", clients=3, tasks=2, speeds=("slow", "rapid", "slow"), rapid_prevalence=(0.0, 0.5),
        slow_prevalence=(0.0, 0.2),
    )  # fmt: skip
    late = [(TABLE.labels[tasks[1]] == 2).mean() for tasks in timeline.train]
    assert np.abs(np.array(late) - [0.2, 0.5, 0.2]).max() < 0.03
    assert all((TABLE.labels[tasks[0]] != 2).all() for tasks in timeline.train)


@pytest.mark.parametrize("mode", ["fixed", "compat"])
def test_other_samples_are_thinned_in_every_part_by_whole_patients(mode: str) -> None:
    table = make_table(patients=2000)
    timeline = make("novel_disease", table, mode=mode, clients=4, others_per_new=0.5)
    cut = [[rows for client in part for rows in client] for part in (timeline.validation, timeline.test)]
    for rows in (*cut, [timeline.holdout]):
        share = (table.labels[np.unique(np.concatenate(rows))] == 2).mean()
        assert 0.64 < share < 0.69
    assert used(timeline) == table.num_samples or mode == "compat"
    assert timeline.unused["train: beyond the scenario"] > 1000
    if mode == "fixed":
        assert timeline.shared_units(table.attributes["unit"]) == 0
        inside = np.isin(table.attributes["unit"], table.attributes["unit"][timeline.holdout])
        assert inside.sum() == len(timeline.holdout), "whole patients"


def test_a_holdout_without_the_new_class_is_told() -> None:
    config = str(REPOSITORY / "configs" / "smoke" / "medical_novel.yaml")
    for words, told in (
        ([], None),
        (["--scenario.novel_class", "9", "--scenario.others_per_new", "0"], "no samples of the new class, 9"),
        (["--scenario.novel_class", "9"], "the hold-out is empty"),
    ):
        options = ["--scenario.clients", "2", "--scenario.tasks", "1", "--scenario.rapid", "1", *words]
        medical = load_medical(config, [*options, "--scenario.min_task_size", "0"])
        notes = _medical.unused_settings(medical, _medical.open_data(SoloWorld(), medical))
        found = [note for note in notes if "hold-out" in note]
        assert len(found) == bool(told)
        assert not told or told in found[0]


def test_the_smoke_configuration_runs_and_is_reported_as_a_new_disease(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(REPOSITORY / "configs" / "smoke" / "medical_novel.yaml")
    run = str(tmp_path / "run")
    for words in (["run", config, "--rounds", "2", "--out", run], ["report", run, "--json"]):
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert not stopped.value.code
    assert (tmp_path / "run" / "report" / "medical_novel.png").stat().st_size > 100
    told = json.loads(capsys.readouterr().out)
    assert len(told["runs"]) == 1
    scores = {row["score"]: row["mean"] for row in told["medical"]["scores"]}
    known = [scores.get(f"hold-out class {label} accuracy") for label in range(1, 10)]
    assert scores["new class, hold-out"] == scores["hold-out class 0 accuracy"]
    assert scores["known classes, hold-out"] == pytest.approx(np.mean([a for a in known if a is not None]))
