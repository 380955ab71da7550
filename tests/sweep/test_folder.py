"""A sweep's files: they grow to the union of what was asked for, and refuse other settings and other data."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest

from fedhpc.config import from_tree
from fedhpc.errors import ConfigError
from fedhpc.report.sweep_tables import text_report
from fedhpc.report.sweeps import results
from fedhpc.report.trial_files import read_plan
from fedhpc.sweep import folder as module
from fedhpc.sweep.estimate import DatasetFacts
from fedhpc.sweep.folder import DataFacts, write_sweep
from fedhpc.sweep.plan import Plan, make_plan
from fedhpc.sweep.settings import SweepConfig, unusual
from fedhpc.sweep.stored import stored_config

FACTS = {
    "rotated_digits": DatasetFacts(("0", "15", "30", "45"), (450, 449, 449, 449), 8, 8, 1),
    "colored_digits": DatasetFacts(("+90%", "+80%", "-90%"), (599, 599, 599), 8, 8, 2),
    "pacs": DatasetFacts(("A", "C", "P", "S"), (2048, 2344, 1670, 3929), 64, 64, 3),
}
DATA = {name: DataFacts(f"{name}-digest", sum(facts.sizes)) for name, facts in FACTS.items()}


def configured(**sweep: Any) -> SweepConfig:
    tree = {"datasets": {"rotated_digits": None}, "algorithms": ["erm"], "n_hparams": 2, "n_trials": 1, **sweep}
    return from_tree(SweepConfig, {"sweep": tree}, "test")


def planned(config: SweepConfig) -> Plan:
    return make_plan(config, FACTS)


def write(folder: Path, data: dict[str, DataFacts] | None = None, **sweep: Any) -> None:
    config = configured(**sweep)
    known = data or {name: DATA[name] for name in config.sweep.roots}
    write_sweep(folder, config, planned(config), known)


@pytest.mark.parametrize(
    "again",
    [
        {"algorithms": ["irm"]},
        {"datasets": ["colored_digits"]},
        {"test_envs": [1]},
        {"criteria": ["oracle"], "algorithms": ["erm", "mldg"]},
        {"first_hparams": 5, "n_hparams": 3},
        {"first_trial": 2, "n_trials": 2},
        {"test_envs": [[0, 1, 2]]},
    ],
    ids=str,
)
def test_the_configuration_in_the_folder_has_every_trial_that_was_planned(
    again: dict[str, Any], tmp_path: Path
) -> None:
    """So that `fedhpc sweep D/sweep.yaml --only ID`, which reports and job lists print, finds them."""
    write(tmp_path)
    write(tmp_path, **again)
    whole = planned(stored_config(tmp_path))
    ids = [t.id for t in read_plan(tmp_path).planned]
    assert {t.id for t in planned(configured()).trials} <= set(ids)
    assert {t.id for t in planned(configured(**again)).trials} <= set(ids)
    assert [t.id for t in whole.only(ids).trials]


def test_the_plan_says_what_the_trials_settings_are(tmp_path: Path) -> None:
    write(tmp_path / "plain")
    assert (read_plan(tmp_path / "plain").about or {})["settings"] == "defaults"
    changed = {"steps": 31, "validation": "plain", "hparams": {"batch_size": 16}}
    tree = {"sweep": {"datasets": {"rotated_digits": None}, **changed}}
    rest = {"model": {"name": "resnet18", "weights": "/somewhere/w.pth"}, "queue": {"heartbeat": 3}}
    config = from_tree(SweepConfig, {**tree, **rest}, "test")
    assert unusual(config) == {
        "model.name": "resnet18", "model.weights": "w.pth", "sweep.hparams.batch_size": 16, "sweep.steps": 31,
        "sweep.validation": "plain",
    }  # fmt: skip
    write(tmp_path / "changed", **changed)
    text = text_report(results(read_plan(tmp_path / "changed")))
    assert "settings: sweep.hparams.batch_size 16, sweep.steps 31, sweep.validation plain\n" in text


def test_a_part_of_the_sweep_run_again_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, algorithms=["erm", "groupdro"], datasets=["colored_digits"])
    before = {name: (tmp_path / name).read_bytes() for name in ("plan.json", "sweep.yaml")}
    write(tmp_path, datasets=["colored_digits"], test_envs=[0])
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_remarks_on_all_trials_are_kept(tmp_path: Path) -> None:
    write(tmp_path, algorithms=["groupdro", "mixup"], datasets=["colored_digits"])
    write(tmp_path, algorithms=["coral"], datasets=["colored_digits"], first_trial=1)
    found = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))["remarks"]
    assert found == ["colored_digits: groupdro, mixup, coral with one training environment is ERM (18 trials)"]


def test_other_settings_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(ConfigError, match=r"other settings \(sweep\.steps\)"):
        write(tmp_path, steps=3)


def test_other_data_are_refused_with_their_name_and_the_remedy(tmp_path: Path) -> None:
    write(tmp_path)
    before = (tmp_path / "plan.json").read_bytes()
    other = {"rotated_digits": DataFacts("another", 1797)}
    with pytest.raises(ConfigError, match=r"sweep\.datasets\.rotated_digits.*1,797 samples.*another.*other --out"):
        write(tmp_path, other)
    assert (tmp_path / "plan.json").read_bytes() == before


def test_the_same_data_may_move(tmp_path: Path) -> None:
    """A job that stages its data does not leave its own folder behind, as long as the first one is there."""
    first, second = tmp_path / "first", tmp_path / "second"
    for place in (first, second):
        place.mkdir()
    write(tmp_path / "sweep", datasets={"pacs": str(first)})
    write(tmp_path / "sweep", datasets={"pacs": str(second)})
    assert stored_config(tmp_path / "sweep").sweep.roots == {"pacs": str(first)}
    first.rmdir()
    write(tmp_path / "sweep", datasets={"pacs": str(second)})
    assert stored_config(tmp_path / "sweep").sweep.roots == {"pacs": str(second)}


def test_a_plan_of_an_older_version_gets_its_digests(tmp_path: Path) -> None:
    write(tmp_path)
    plan = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    del plan["data"], plan["remarks"]
    (tmp_path / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    write(tmp_path)
    assert json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))["data"] == {
        "rotated_digits": {"digest": "rotated_digits-digest", "num_samples": 1797}
    }


def test_of_two_jobs_at_once_neither_loses_the_trials_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = module.find_remarks

    def slow(*arguments: Any) -> Any:
        time.sleep(0.15)  # as long as the remarks on some ten thousand trials take
        return original(*arguments)

    monkeypatch.setattr(module, "find_remarks", slow)
    fork = multiprocessing.get_context("fork")
    algorithms = ["erm", "irm", "coral"]
    jobs = [fork.Process(target=write, args=(tmp_path / "x",), kwargs={"algorithms": [a]}) for a in algorithms]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(30)
    assert [job.exitcode for job in jobs] == [0, 0, 0]
    assert {t.algorithm for t in read_plan(tmp_path / "x").planned} == set(algorithms)
    assert set(stored_config(tmp_path / "x").sweep.algorithms) == set(algorithms)
    assert sorted(p.name for p in (tmp_path / "x").iterdir()) == ["log", "plan.json", "sweep.yaml"]


def _die(*_: object) -> None:
    os._exit(9)


@pytest.mark.parametrize("place", ["find_remarks", "plan_text", "PLAN"])
def test_a_job_killed_while_it_plans_leaves_a_folder_to_go_on_with(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle, and (`PLAN`) after the configuration was written; a lone one is that of a job, and is kept to."""
    with monkeypatch.context() as patched:
        if place == "PLAN":
            write_one = module.write_atomically
            patched.setattr(
                module, "write_atomically", lambda p, text: _die() if p.name == "plan.json" else write_one(p, text)
            )
        else:
            patched.setattr(module, place, _die)
        victim = multiprocessing.get_context("fork").Process(target=write, args=(tmp_path,))
        victim.start()
        victim.join(30)
        assert victim.exitcode == 9
    if place == "PLAN":
        with pytest.raises(ConfigError, match=r"other settings \(sweep\.steps\)"):
            write(tmp_path, steps=3)
    write(tmp_path)
    assert len(read_plan(tmp_path).planned) == len(planned(configured()).trials)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="is not empty and holds no sweep"):
        write(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_plan_knows_whether_it_is_all_that_the_configuration_asks_for(tmp_path: Path) -> None:
    """A report may then name the sweep's command without a list of trials."""
    plan = planned(configured())
    write_sweep(tmp_path, configured(), plan.only([plan.trials[0].id]), {"rotated_digits": DATA["rotated_digits"]})
    assert not read_plan(tmp_path).whole
    write(tmp_path)
    assert read_plan(tmp_path).whole
    write(tmp_path, first_hparams=5, n_hparams=1, datasets=["rotated_digits", "colored_digits"])
    assert not read_plan(tmp_path).whole, "draws 2 to 4 were never asked for"
    write(tmp_path, n_hparams=6, datasets=["rotated_digits", "colored_digits"])
    assert read_plan(tmp_path).whole
