"""The enumeration against DomainBed's own job lists, and its records through our reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedhpc.report.names import ours
from fedhpc.report.original import original_records, original_trial, run_arguments, run_command, run_name
from fedhpc.report.selection import criteria
from fedhpc.report.trial_files import ORACLE, TEST, TRAIN, VALIDATION
from fedhpc.runs.records import Record
from fedhpc.sweep.trials import Axes, SweepDataset, enumerate_trials, needed_test_envs, singles_and_pairs
from tests.golden.selection_cases import named

ALGORITHMS = ["erm", "irm", "groupdro", "mixup", "mldg", "coral", "mmd", "dann", "cdann"]


def _vectors(request: pytest.FixtureRequest, pattern: str) -> list[Path]:
    files = named(request.config.getoption("--vectors"), pattern)
    if not files:
        pytest.skip(f"no {pattern} among the vectors")
    return files


def test_counts_of_the_whole_study(request: pytest.FixtureRequest) -> None:
    wanted = json.loads(_vectors(request, "sweep_counts.json")[0].read_text(encoding="utf-8"))
    known = criteria()
    singles_only = {"oracle": known["oracle"]}
    totals = [0, 0]
    for name, entry in wanted["per_dataset"].items():
        n = entry["n_env"]
        assert [list(e) for e in needed_test_envs(known, n)] == entry["test_env_sets"]
        for place, sets in enumerate((needed_test_envs(known, n), needed_test_envs(singles_only, n))):
            datasets = [SweepDataset(ours(name), n, 5001, 300)]
            trials = list(enumerate_trials(Axes(ALGORITHMS, range(20), range(3)), datasets, {ours(name): sets}))
            assert len(trials) == entry[("jobs_9alg_3trials_20hp", "jobs_single")[place]]
            totals[place] += len(trials)
    assert totals == [wanted["total"], wanted["total_single_test_env_only"]]


def test_job_lists_are_the_original_to_the_letter(request: pytest.FixtureRequest) -> None:
    for case in json.loads(_vectors(request, "sweep_jobs.json")[0].read_text(encoding="utf-8")):
        assert [job["args"] for job in case["jobs"]] == _arguments(case["request"])
        for job, args in zip(case["jobs"], _arguments(case["request"]), strict=True):
            assert json.dumps(args, sort_keys=True) == job["canonical"]
            assert run_name(args) == job["name"]
            assert run_command(args, "OUT") == job["command"]


def _arguments(request: dict[str, Any]) -> list[dict[str, Any]]:
    """What our enumeration makes of a request to the original's sweep."""
    sizes = {ours(name): 3 if name == "ColoredMNIST" else 4 for name in request["dataset_names"]}
    sets = {
        name: [e for e in singles_and_pairs(n) if len(e) == 1 or not request["single_test_envs"]]
        for name, n in sizes.items()
    }
    axes = Axes(
        [ours(a) for a in request["algorithms"]],
        range(request["n_hparams_from"], request["n_hparams"]),
        range(request["n_trials"]),
        {"holdout_fraction": request["holdout_fraction"]},
    )
    datasets = [SweepDataset(name, n, 1, 1) for name, n in sizes.items()]
    found = []
    for spec in enumerate_trials(axes, datasets, sets):
        values = {**spec.full_dict(), "steps": request["steps"], "hparams": request["hparams"]}
        found.append(run_arguments(values, request["data_dir"]))
    return found


def test_records_of_the_original_survive_the_way_through_ours(request: pytest.FixtureRequest) -> None:
    """results.jsonl as our records, and back: equal, key for key."""
    for file in _vectors(request, "*.results.jsonl"):
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        trial = original_trial(rows, file.stem, finished=True)
        assert trial is not None
        assert [c.step for c in trial.checkpoints] == [row["step"] for row in rows]
        records = [record for row in rows for record in _records(row)]
        back = list(original_records(iter(records), rows[0]["args"], rows[0]["hparams"]))
        assert back == rows


def _records(row: dict[str, Any]) -> list[Record]:
    """A row as the trial runner would have recorded it."""
    found = []
    held_out = row["args"]["test_envs"]
    names = {"step_time": "step_seconds", "mem_gb": "memory_gib"}
    for key, value in row.items():
        if key.startswith("env"):
            env, part, _ = key.removeprefix("env").split("_")
            roles = (TEST, ORACLE) if int(env) in held_out else (TRAIN, VALIDATION)
            what = roles[0 if part == "in" else 1]
            found.append(Record(what, value, "fraction", row["step"], 0.0, environment=int(env)))
        elif key not in ("args", "hparams", "step"):
            found.append(Record(names.get(key, key), value, "", row["step"], 0.0))
    return found
