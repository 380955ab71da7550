"""Reading sweeps that are whole, cut, damaged or incomplete, and what the tables make of them."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedhpc.errors import ConfigError, FedhpcError
from fedhpc.report.domainbed import original_text, report_sweep
from fedhpc.report.original import export_original, read_original
from fedhpc.report.results import PlannedTrial, SweepRecords
from fedhpc.report.sweep_json import json_tree
from fedhpc.report.sweep_tables import csv_report, explanations, latex_report, text_report
from fedhpc.report.sweeps import reads, results
from fedhpc.report.trial_files import checkpoints, plan_text, read_plan, read_sweep
from fedhpc.runs.records import Record

ENVS = 3


def record(envs: tuple[int, ...], hparams_seed: int, trial_seed: int, step: int, value: float) -> dict[str, Any]:
    """One line of DomainBed's results."""
    accuracies = {f"env{i}_{part}_acc": value for i in range(ENVS) for part in ("in", "out")}
    args = {
        "algorithm": "ERM", "dataset": "Made_Up", "test_envs": list(envs), "hparams_seed": hparams_seed,
        "trial_seed": trial_seed, "holdout_fraction": 0.2, "data_dir": "DATA", "hparams": None,
    }  # fmt: skip
    return {"args": args, "hparams": {"lr": 0.1}, "step": step, **accuracies}


def write_original(folder: Path, without: tuple[str, ...] = ()) -> Path:
    """A complete sweep of two candidates and two trials, less some runs."""
    for trial in range(2):
        for seed in range(2):
            for envs in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2)):
                name = f"{'+'.join(map(str, envs))}-h{seed}-t{trial}"
                if name in without:
                    continue
                run = folder / name
                run.mkdir(parents=True)
                rows = [record(envs, seed, trial, step, 0.5 + 0.1 * seed + 0.01 * trial) for step in (0, 5)]
                (run / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
                (run / "done").write_text("done", encoding="utf-8")
    return folder


def test_a_complete_foreign_sweep_has_nothing_missing(tmp_path: Path) -> None:
    sweep = read_original(write_original(tmp_path))
    found = results(sweep)
    assert len(sweep.planned) == len(sweep.trials) == 24
    assert json_tree(found)["missing"] == []
    for table in json_tree(found)["tables"]:
        for cell in table["rows"][0]["cells"]:
            assert cell["mean"] == pytest.approx(60.5)
            assert cell["standard_error"] == pytest.approx(0.5 / 2**0.5)
            assert [c["hparams_seed"] for c in cell["choices"]] == [1, 1]
    assert "60.5 ± 0.4" in text_report(found)
    assert r"60.5 $\pm$ 0.4" in latex_report(found)


def test_one_trial_has_no_standard_error(tmp_path: Path) -> None:
    """In our layouts; the original prints 0."""
    sweep = read_original(write_original(tmp_path))
    one = replace(sweep, trials=tuple(t for t in sweep.trials if t.trial_seed == 0), planned=())
    found = results(one)
    text = text_report(found)
    assert "±" not in text
    assert "of one trial: there is no standard error" in text
    assert r"\pm" not in latex_report(found)
    row = json_tree(found)["tables"][0]["rows"][0]
    assert (row["mean"], row["mean_standard_error"]) == (pytest.approx(60.0), None)
    assert [(c["standard_error"], c["num_trials"]) for c in row["cells"]] == [(None, 1)] * ENVS
    original = results(one, compat=True)
    assert "60.0 +/- 0.0" in original_text(original)
    assert json_tree(original)["tables"][0]["rows"][0]["cells"][0]["standard_error"] == 0.0


def test_the_mean_has_the_error_of_the_trials_means(tmp_path: Path) -> None:
    """Trials move together here, so it is that of each cell, not a third of the sum."""
    found = results(read_original(write_original(tmp_path)), ["oracle"])
    text = text_report(found)
    assert "mean ± standard error (standard deviation / √n) over 2 trials" in text
    row = next(line for line in text.splitlines() if line.startswith("erm"))
    assert row.split()[1:] == ["60.5", "±", "0.4"] * 4
    assert json_tree(found)["tables"][0]["rows"][0]["mean_standard_error"] == pytest.approx(0.5 / 2**0.5)


def test_tables_say_over_how_many_trials_where_that_differs(tmp_path: Path) -> None:
    without = tuple(f"0-h{seed}-t1" for seed in range(2))
    text = text_report(results(read_original(write_original(tmp_path, without)), ["oracle"]))
    assert "Made_Up (1 to 2 trials a cell), selected by test-domain" in text
    row = next(line for line in text.splitlines() if line.startswith("erm"))
    assert row.split()[1:] == ["60.0*", "60.5", "±", "0.4", "60.5", "±", "0.4", "60.3*"]


def test_missing_runs_are_starred_and_named(tmp_path: Path) -> None:
    sweep = read_original(write_original(tmp_path, without=("0-h1-t0", "1+2-h0-t1")))
    text = text_report(results(sweep))
    row = next(line for line in text.splitlines() if line.startswith("ERM") or line.startswith("erm"))
    assert row.split()[1:4] == ["55.5", "±", "3.9*"]
    assert "2 trials are missing" in text
    assert "test environments [0], hparams seed 1, trial 0: python -m domainbed.scripts.train" in text
    assert "test environments [1, 2], hparams seed 0, trial 1" in text
    assert "*" not in original_text(results(sweep, compat=True))


def test_a_cut_line_is_passed_over_and_a_broken_one_is_told(tmp_path: Path) -> None:
    write_original(tmp_path)
    cut, broken = tmp_path / "0-h0-t0" / "results.jsonl", tmp_path / "1-h0-t0" / "results.jsonl"
    cut.write_text(cut.read_text()[:-40], encoding="utf-8")
    broken.write_text("{}}\n" + broken.read_text(), encoding="utf-8")
    (tmp_path / "2-h0-t0" / "results.jsonl").write_text("", encoding="utf-8")
    (tmp_path / "0+1-h0-t0" / "results.jsonl").write_text(json.dumps({"step": 0}) + "\n", encoding="utf-8")
    sweep = read_original(tmp_path)
    assert [len(t.checkpoints) for t in sweep.trials if t.run == "0-h0-t0"] == [1]
    assert len(sweep.trials) == 21
    assert len(sweep.problems) == 2
    assert "1-h0-t0/results.jsonl: line 1 is not JSON" in sweep.problems[1]
    assert "damaged and not counted" in text_report(results(sweep))


def test_an_unfinished_run_is_missing_unless_the_original_is_followed(tmp_path: Path) -> None:
    write_original(tmp_path)
    (tmp_path / "0-h1-t0" / "done").unlink()
    sweep = read_original(tmp_path)
    assert len(json_tree(results(sweep))["missing"]) == 1
    best = {compat: results(sweep, ["oracle"], compat).tables["oracle"][0].rows[0].cells[0] for compat in (False, True)}
    assert [best[compat].choices[0].hparams_seed for compat in (False, True)] == [0, 1]


def test_csv_has_a_line_per_choice(tmp_path: Path) -> None:
    found = results(read_original(write_original(tmp_path)))
    rows = list(csv.DictReader(io.StringIO(csv_report(found))))
    assert len(rows) == 3 * ENVS * 2
    assert {row["hparams_seed"] for row in rows} == {"1"}
    assert json.loads(rows[0]["hparams"]) == {"lr": 0.1}
    assert {float(row["test_accuracy"]) for row in rows} == {0.6, 0.61}


def test_choices_are_explained(tmp_path: Path) -> None:
    lines = list(explanations(results(read_original(write_original(tmp_path)), ["leave_one_domain_out"])))
    assert lines[0] == "ERM on Made_Up, test environment 0, leave-one-domain-out cross-validation:".replace(
        "ERM", "erm"
    )
    assert "60.0 % from 0-h1-t0 at step 0, hparams seed 1" in lines[1]
    assert "60.0 % on environment 2 (larger part) by 0+2-h1-t0" in lines[1]


def test_the_files_of_a_report(tmp_path: Path) -> None:
    sweep = write_original(tmp_path / "sweep")
    written = report_sweep(sweep, tmp_path / "report", style="domainbed", names=["oracle"])
    assert {p.name for p in (tmp_path / "report").iterdir()} == {
        "results.txt", "results.tex", "sweep.csv", "sweep.json", "choices.txt", "selected.sh", "report.html",
        "sweep_Made_Up.png",
        "sweep_Made_Up.svg",
    }  # fmt: skip
    assert written.text.startswith(
        "Total records: 48\n\n-------- Dataset: Made_Up, model selection method: test-domain"
    )
    assert json.loads(written.json)["rules"] == "domainbed"
    assert reads(sweep)
    assert not reads(tmp_path)
    with pytest.raises(ConfigError, match=r"holds no folders with results\.jsonl"):
        report_sweep(tmp_path / "report")
    with pytest.raises(ConfigError, match="no 'orakel'"):
        report_sweep(sweep, names=["orakel"])


def test_records_of_ours_become_checkpoints() -> None:
    lines = [
        Record("loss", 1.0, "", 0, 0.0),
        Record("test_accuracy", 0.25, "fraction", 0, 0.0, environment=0),
        Record("oracle_accuracy", 0.5, "fraction", 0, 0.0, environment=0),
        Record("train_accuracy", 0.75, "fraction", 0, 0.0, environment=1),
        Record("validation_accuracy", None, "fraction", 0, 0.0, environment=1),
        Record("validation_accuracy", 1.0, "fraction", 7, 0.0, environment=1),
    ]
    first, second = checkpoints(lines, 2)
    assert (first.step, first.train, first.validation[0]) == (0, (0.25, 0.75), 0.5)
    assert first.validation[1] != first.validation[1]  # NaN: could not be measured
    assert (second.step, second.validation[1]) == (7, 1.0)


PLANNED = PlannedTrial("abc", "trials/d/erm/e0-h0-t0-abc", "d", "erm", (0,), 0, 0)


def test_a_plan_is_read_back_and_damaged_trials_are_told(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(plan_text([PLANNED], {"d": ["x", "y"]}, ["oracle"], {"profile": "paper"}))
    plan = read_plan(tmp_path)
    assert plan.planned == (PLANNED,)
    assert (plan.labels("d"), plan.criteria, plan.about) == (("x", "y"), ("oracle",), {"profile": "paper"})
    folder = tmp_path / PLANNED.run
    folder.mkdir(parents=True)
    for content, said in (
        ("{", "is not JSON"),
        ("[]", "is no record"),
        ('{"spec": {}}', "lacks what a report needs ('dataset')"),
    ):
        (folder / "done").write_text(content)
        sweep = read_sweep(tmp_path)
        assert sweep.trials == ()
        assert said in sweep.problems[0]
    text = text_report(results(sweep))
    assert "0 of 1 trials finished" in text
    assert "1 trials are missing; run them with" in text
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(FedhpcError, match="is no plan of a sweep"):
        read_plan(tmp_path)


def test_an_export_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(ConfigError, match="is not empty"):
        export_original(tmp_path, tmp_path / "full")


def test_names_in_latex_are_escaped() -> None:
    sweep = SweepRecords("a_sweep", (), (PLANNED,), {"d": ("+90%", "a_b")}, ("oracle",))
    text = latex_report(results(sweep))
    assert r"+90\%" in text
    assert "a_sweep" in text.splitlines()[0]
