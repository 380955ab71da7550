"""The enumeration against DomainBed's own job lists, and its records through our reader."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedhpc.report.names import ENVIRONMENTS, ours
from fedhpc.report.original import (
    export_original,
    original_records,
    original_trial,
    run_arguments,
    run_command,
    run_name,
)
from fedhpc.report.selection import criteria
from fedhpc.report.trial_files import ORACLE, TEST, TRAIN, VALIDATION
from fedhpc.runs.records import Record
from fedhpc.sweep.trials import Axes, SweepDataset, TrialSpec, enumerate_trials, needed_test_envs, singles_and_pairs
from tests.golden.domainbed_cases import Case, parametrize
from tests.report.own_sweep import write_sweep

ALGORITHMS = ["erm", "irm", "groupdro", "mixup", "mldg", "coral", "mmd", "dann", "cdann"]
COUNTED = re.compile(r"jobs_(\d+)alg_(\d+)trials_(\d+)hp")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc)


def test_counts_of_the_whole_study(sweep_counts_case: Case) -> None:
    wanted = sweep_counts_case.facts
    known = criteria()
    singles_only = {"oracle": known["oracle"]}
    totals = [0, 0]
    for name, entry in wanted["per_dataset"].items():
        n = entry["n_env"]
        assert len(ENVIRONMENTS.get(ours(name), range(n))) == n
        assert [list(e) for e in needed_test_envs(known, n)] == entry["test_env_sets"]
        whole = next(key for key in entry if COUNTED.fullmatch(key))
        algorithms, repetitions, draws = map(int, COUNTED.fullmatch(whole).groups())  # type: ignore[union-attr]
        axes = Axes(ALGORITHMS[:algorithms], range(draws), range(repetitions))
        for place, chosen in enumerate((known, singles_only)):
            datasets = [SweepDataset(ours(name), n, 5001, 300)]
            trials = list(enumerate_trials(axes, datasets, {ours(name): needed_test_envs(chosen, n)}))
            assert len(trials) == entry[(whole, "jobs_single")[place]]
            totals[place] += len(trials)
    assert totals == [wanted["total"], wanted["total_single_test_env_only"]]


def test_job_lists_are_the_original_to_the_letter(sweep_jobs_case: Case) -> None:
    for case in sweep_jobs_case.facts:
        found = _arguments(case)
        assert len(found) == case["n_jobs"]
        assert [job["args"] for job in case["jobs"]] == found
        for job, args in zip(case["jobs"], found, strict=True):
            assert json.dumps(args, sort_keys=True) == job["canonical"]
            assert run_name(args) == job["name"]
            assert run_command(args, "OUT") == job["command"]


def test_an_export_has_the_folders_of_the_original_sweep(sweep_jobs_case: Case, tmp_path: Path) -> None:
    """So that its script, given the same choices, finds these runs done."""
    for number, case in enumerate(sweep_jobs_case.facts):
        request, names = case["request"], [job["name"] for job in case["jobs"]]
        if request["task"] != "domain_generalization":
            continue
        trials = _trials(case, steps=request["steps"] or 5001, hparams=json.loads(request["hparams"] or "{}"))
        labels = {t.dataset: ENVIRONMENTS.get(t.dataset, "abcdefgh") for t in trials}
        folder = write_sweep(tmp_path / f"ours{number}", trials, labels)
        out = tmp_path / f"theirs{number}"
        assert export_original(folder, out, request["data_dir"]) == len(names)
        rows = [json.loads((run / "results.jsonl").read_text().splitlines()[0]) for run in out.iterdir()]
        given = {row["args"]["hparams"] for row in rows}
        assert len(given) == 1
        (text,) = given
        if text in (None, request["hparams"]):  # else the same values in another text, which counts as another job
            assert sorted(run.name for run in out.iterdir()) == sorted(names)
        assert json.loads(text or "{}") == json.loads(request["hparams"] or "{}")
        assert {row["args"]["steps"] for row in rows} == {request["steps"]}


def _arguments(case: dict[str, Any]) -> list[dict[str, Any]]:
    """What our enumeration makes of a request to the original's sweep."""
    request = case["request"]
    given = {key: request[key] for key in ("steps", "hparams", "task")}
    return [run_arguments({**spec.full_dict(), **given}, request["data_dir"]) for spec in _trials(case)]


def _trials(case: dict[str, Any], steps: int = 1, hparams: dict[str, Any] | None = None) -> list[TrialSpec]:
    """Our trials for a request; a dataset that we do not know has the environments that its jobs hold out."""
    request = case["request"]
    held_out = {ours(name): 0 for name in request["dataset_names"]}
    for job in case["jobs"]:
        name = ours(job["args"]["dataset"])
        held_out[name] = max(held_out[name], *job["args"]["test_envs"])
    sizes = {name: len(ENVIRONMENTS.get(name, range(last + 1))) for name, last in held_out.items()}
    sets = {
        name: [e for e in singles_and_pairs(n) if len(e) == 1 or not request["single_test_envs"]]
        for name, n in sizes.items()
    }
    axes = Axes(
        [ours(a) for a in request["algorithms"]],
        range(request["n_hparams_from"], request["n_hparams"]),
        range(request["n_trials"]),
        {"holdout_fraction": request["holdout_fraction"], "hparams": hparams or {}},
    )
    datasets = [SweepDataset(name, n, steps, 1) for name, n in sizes.items()]
    return list(enumerate_trials(axes, datasets, sets))


def test_records_of_the_original_survive_the_way_through_ours(run_records_case: Case) -> None:
    """results.jsonl as our records, and back: equal, key for key."""
    rows = run_records_case.facts
    trial = original_trial(rows, run_records_case.path.stem, finished=True)
    assert trial is not None
    assert [c.step for c in trial.checkpoints] == [row["step"] for row in rows]
    records = [record for row in rows for record in _records(row)]
    back = list(original_records(iter(records), rows[0]["args"], rows[0]["hparams"]))
    assert json.dumps(back, sort_keys=True) == json.dumps(rows, sort_keys=True)


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
