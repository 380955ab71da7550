"""The medical part of a report: its tables, figures and the original's log files."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedhpc.report import report
from fedhpc.report.medical import read_medical
from fedhpc.report.medical_logs import fedmedicl_logs
from fedhpc.report.medical_plots import contrast_plot, medical_plots
from fedhpc.report.medical_report import medical_files
from tests.report.medical_runs import write_run

TREE = {
    "clients": 2, "tasks": 3, "groups": ["0-59", "60+"], "classes": ["a", "b", "c"],
    "rows": [
        {"client": c, "kind": "equal", "task": t, "part": part, "num": 6, "per_group": [3, 3], "per_class": [4, 2, c]}
        for c in range(2) for t in range(3) for part in ("train", "test")
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recipes, two seeds; one run with a model per client, one broken off, one repeated."""
    place = tmp_path_factory.mktemp("study")
    for recipe, bonus in (("cb", 1.0), ("erm", -1.0)):
        for seed in (0, 1):
            reached = 2 if (recipe, seed) == ("erm", 1) else None
            run = write_run(
                place / f"{recipe}-seed{seed}", recipe, seed, bonus=bonus, own=recipe == "erm", reached=reached
            )
            (run / "scenario.json").write_text(json.dumps(TREE))
    write_run(place / "cb-again", "cb", 1)
    (place / "cb-seed0" / "contrast.json").write_text(
        '{"digits": {"0-59": [9, 9], "60+": [8, 7]}, "skin": {"a": [1, 2]}}'
    )
    (place / "scenario").mkdir()
    (place / "scenario" / "contrast.json").write_text('{"digits": {"0-59": [1, 2, 3], "60+": [2, 3, 5]}}')
    return place


@pytest.fixture(scope="module")
def written(study: Path):  # type: ignore[no-untyped-def]
    return report([study], style="fedmedicl")


def test_a_report_has_the_medical_tables_and_figures(study: Path, written) -> None:  # type: ignore[no-untyped-def]
    assert "F-CB" in written.text
    assert "hold-out LTR" in written.text
    names = {path.name for path in written.files}
    figures = {f"medical_{name}.png" for name in ("tasks", "holdout_ltr", "holdout_auc", "novel")}
    assert figures | {"medical.txt", "medical.csv", "medical.tex", "medical_tasks.csv", "contrast.svg"} <= names
    rows = json.loads((study / "report" / "medical.json").read_text())["scores"]
    by_hand = [read_medical(study / f"cb-seed{seed}", "").final_holdout("ltr") for seed in (0, 1)]
    found = next(row for row in rows if row["recipe"] == "F-CB" and row["score"] == "hold-out LTR")
    assert found["mean"] == pytest.approx(np.mean(by_hand))
    assert found["low"] < found["mean"] < found["high"]
    assert (study / "report" / "medical.csv").read_text().count("\n") == 1 + len(rows)
    latex = (study / "report" / "medical.tex").read_text()
    assert latex.count(r"\\") == 1 + 1 + 2
    for text in (latex, written.text):
        assert "mean over seeds ± half of the 95 % t-interval over seeds (none of one seed)" in text
    assert "; seeds: 2\n" in latex


def test_what_is_missing_or_left_out_is_said(study: Path, written) -> None:  # type: ignore[no-untyped-def]
    assert "repeats" in written.text
    assert "erm-seed1 has no scores after task 3" in written.text
    assert f"fedhpc run {study / 'erm-seed1' / 'config.yaml'} --out {study / 'erm-seed1'} --resume" in written.text
    rows = json.loads((study / "report" / "medical.json").read_text())["scores"]
    erm = next(row for row in rows if row["recipe"] == "ERM" and row["score"] == "cumulative LTR")
    assert [value is None for value in erm["values"]] == [False, True]


def test_runs_are_named_apart_and_a_finished_one_is_not_to_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedhpc.report.medical_report._figures", lambda *_: {})  # slow
    places = [write_run(tmp_path / name, "cb", seed, reached=2) for seed, name in
              enumerate(("a/s/r1", "b/s/r1", "b/s/r2", "a-s/r1", "a/s-r1"))]  # fmt: skip
    (places[2] / "done").touch()
    (places[0] / "failed").write_text("2 of 2 clients diverged; begin anew: --resume would diverge again")
    text, files = medical_files(places, [tmp_path])
    names = [run["name"] for run in json.loads(files["medical.json"])["runs"]]
    assert len(set(names)) == 5
    assert {"b-s-r1", "r2"} <= set(names)
    assert "note: r2 came to its end, but nobody was tested after task 3" in text
    assert text.count(" --resume") == 3 + 1
    assert "it failed: 2 of 2 clients diverged" in text
    assert f"--out {places[0]} --resume" not in text, "it would diverge again"


def test_json_holds_all_scores_of_every_run(study: Path, written) -> None:  # type: ignore[no-untyped-def]
    tree = json.loads((study / "report" / "medical.json").read_text())
    scores = {row["score"] for row in tree["scores"]}
    assert {
        "forgetting", "backward transfer", "group gap", "local group gap", "local absent classes",
        "hold-out class c accuracy", "local class a accuracy", "hold-out group 60+ LTR", "local group 0-59 accuracy",
        "known classes, hold-out", "new class, hold-out", "hold-out LTR, absent class 0 (original)", "hold-out AUC",
        "imbalance factor of the training tables",
    } <= scores  # fmt: skip
    run = next(run for run in tree["runs"] if run["name"] == "cb-seed0")
    assert np.shape(run["matrix"]["ltr"]) == np.shape(run["client_matrices"]["1"]) == (3, 3)
    assert np.shape(run["known_and_novel"]) == (2, 1, 3)
    assert run["training_imbalance_factor"] == 24 / 3
    assert len(run["holdout"]["ltr"]["common"]) == 3
    text = (study / "report" / "medical.txt").read_text()
    for part in ("F-CB: after task", "A_t", "new class, hold-out", "imbalance factor"):
        assert part in text
    lines = (study / "report" / "medical_tasks.csv").read_text().splitlines()
    assert "medical_digits_novel,F-CB,0,cb-seed0,1,3,2,ltr," in "\n".join(lines)


def test_contrasts_of_all_files_are_drawn(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = {}
    plots = "fedhpc.report.medical_plots"
    monkeypatch.setattr(f"{plots}.contrast_plot", lambda found: drawn.update(found) or {})
    monkeypatch.setattr(f"{plots}.medical_plots", lambda runs: {})
    monkeypatch.setattr(f"{plots}.scenario_plots", lambda tree: {})
    medical_files([study / "cb-seed0", study / "erm-seed0"], [study])
    assert drawn == {"digits": {"0-59": [1, 2, 3], "60+": [2, 3, 5]}, "skin": {"a": [1, 2]}}  # whole ones first
    drawn.clear()
    text, _ = medical_files([study / "erm-seed0"], [study / "erm-seed0"])
    assert drawn == {}
    assert f"fedhpc scenario {study / 'erm-seed0' / 'config.yaml'} --contrast --out {study / 'erm-seed0'}" in text


def test_figures_are_repeatable_and_take_any_number_of_groups(study: Path) -> None:
    runs = [read_medical(study / "erm-seed0", "x")]  # one seed, a model per client
    assert medical_plots(runs) == medical_plots(runs)
    contrast = contrast_plot({"digits": {f"group {g}": [g + 1.0, g + 2.0] for g in range(19)}, "none": {"a": []}})
    assert contrast["contrast.png"].startswith(b"\x89PNG")


def test_many_variants_with_long_names_have_room(study: Path) -> None:
    run = read_medical(study / "cb-seed0", "x")
    runs = [replace(run, config={**run.config, "local": {"lr": i, "steps": i % 7}}) for i in range(40)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns where axes have no room
        files = medical_plots(runs)
    assert {"medical_tasks.png", "medical_holdout_ltr.png", "medical_novel.png"} <= set(files)


def test_a_report_without_medical_runs_is_as_before(tmp_path: Path) -> None:
    place = write_run(tmp_path / "run", "cb", 0)
    (place / "config.yaml").write_text("seed: 0\n")
    assert medical_files([place], [tmp_path]) == ("", {})


def test_the_originals_log_files(study: Path, written) -> None:  # type: ignore[no-untyped-def]
    run = read_medical(study / "erm-seed0", "x")
    files = {name: content.decode().splitlines() for name, content in fedmedicl_logs(run).items()}
    assert set(files) == {"ERM_test.csv", "ERM_holdout.csv"}
    assert len(files["ERM_test.csv"]) == 1 + 2 * 3 * 3
    assert len(files["ERM_holdout.csv"]) == 1 + 2 * 3  # a new disease: after every task
    iteration, client, trained, task, loss, accuracy = files["ERM_test.csv"][-1].split(",")[:6]
    assert (iteration, client, trained, task) == ("150", "1", "2", "2")
    assert float(accuracy) == round(100 * run.local["accuracy"][1][2, 2], 3)
    assert not math.isnan(float(loss))
    assert (study / "report" / "erm-seed0_ERM_test.csv").exists()
