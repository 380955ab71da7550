"""From records of medical runs to matrices, tables and figures."""

from __future__ import annotations

import ast
import csv
import io
import math
from pathlib import Path

import numpy as np
import pytest

from fedhpc.medical.scores import Moment, task_records
from fedhpc.report import ltr
from fedhpc.report.medical import _derive, is_medical, read_medical
from fedhpc.report.medical_groups import by_title, without_repeats
from fedhpc.report.medical_logs import fedmedicl_logs
from fedhpc.report.medical_plots import medical_plots
from fedhpc.report.medical_report import medical_files
from fedhpc.report.medical_scores import DETAILS
from fedhpc.report.medical_tables import matrix_table, medical_table
from tests.report.medical_runs import CONFIG, write_run


@pytest.fixture
def runs(tmp_path: Path):  # type: ignore[no-untyped-def]
    places = [
        write_run(tmp_path / f"{recipe}-{seed}", recipe, seed, bonus=bonus)
        for recipe, bonus in (("cb", 1.0), ("erm", -1.0))
        for seed in (0, 1, 2)
    ]
    return [read_medical(place, place.name) for place in places]


def test_matrices_are_by_trained_and_evaluated_task(runs) -> None:  # type: ignore[no-untyped-def]
    run = runs[0]
    matrix = run.local["ltr"][1]
    assert matrix.shape == (3, 3)
    assert np.diag(matrix).mean() > matrix[0, 2]
    expected = np.mean([ltr.cumulative(m)[-1] for m in run.local["ltr"].values()])
    assert run.cumulative()[-1] == pytest.approx(expected)
    assert run.over_clients(ltr.forgetting) >= 0


def test_table_has_a_line_per_recipe_and_intervals_over_seeds(runs) -> None:  # type: ignore[no-untyped-def]
    lines = medical_table(runs).splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["ERM", "F-CB"]
    assert lines[2].split()[1] == "3"
    assert "±" in lines[2]
    assert list(by_title(runs)) == ["ERM", "F-CB"]


def test_known_and_new_classes_apart(runs) -> None:  # type: ignore[no-untyped-def]
    known, new = runs[0].novel_curves()
    assert known.shape == new.shape == (1, 3)
    assert new[0, 2] > new[0, 0]


def test_what_was_not_recorded_is_missing_not_zero(tmp_path: Path) -> None:
    place = tmp_path / "empty"
    place.mkdir()
    (place / "config.yaml").write_text(CONFIG.format(seed=0, recipe="cb", tasks=3, lr=0.1))
    (place / "metrics.jsonl").touch()
    run = read_medical(place, "empty")
    assert math.isnan(run.final_holdout("ltr"))
    assert medical_table([run]).splitlines()[2].split()[-7:] == ["-"] * 7
    assert not run.finished
    assert medical_plots([run]) == {}


def test_a_run_that_has_no_scores_yet_does_not_keep_another_from_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedhpc.report.medical_report._figures", lambda *_: {})  # slow
    places = [write_run(tmp_path / f"{seed}", "cb", seed, reached=0 if seed else None) for seed in (0, 1)]
    text, files = medical_files(places, [tmp_path])
    assert "1 of 2" in text
    means = [matrix_table([read_medical(place, "x") for place in some]) for some in (places, places[:1])]
    assert means[0] == means[1] != ""
    rows = list(csv.DictReader(io.StringIO(files["medical.csv"].decode())))
    assert {row["seeds"] for row in rows if row["mean"]} == {"1"}
    assert {row["seeds"] for row in rows if not row["mean"]} <= {"0"}


def test_only_runs_with_a_scenario_are_medical(tmp_path: Path) -> None:
    place = write_run(tmp_path / "run", "cb", 0, tasks=1, clients=1)
    assert is_medical(place)
    (place / "config.yaml").write_text("seed: 0\n")
    assert not is_medical(place)
    assert not is_medical(tmp_path / "nowhere")


def test_an_area_that_is_not_defined_is_missing_with_a_reason() -> None:
    found, reason = ltr.auc(np.array([[0.2, 0.8], [0.6, 0.4]]), np.array([1, 1]))
    assert math.isnan(found)
    assert reason == "one class only"


def test_areas_are_scikit_learns() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    for classes in (2, 3, 5):
        logits = np.round(rng.normal(size=(80, classes)), 1)  # rounded, so that there are ties
        labels = rng.integers(0, classes, 80)
        scores = ltr.softmax(logits)
        expected = roc_auc_score(labels, scores[:, 1] if classes == 2 else scores, multi_class="ovo")
        assert ltr.auc(scores, labels)[0] == pytest.approx(expected, rel=1e-12)
        apart = [roc_auc_score(labels == c, scores[:, c]) for c in range(classes)]
        assert ltr.per_class_auc(scores, labels) == pytest.approx(apart, rel=1e-12)


def test_records_name_classes_and_groups_and_leave_absent_ones_open() -> None:
    logits, labels = np.array([[2.0, 1.0, 0.0], [0.0, 3.0, 0.0], [1.0, 0.0, 0.0]]), np.array([0, 1, 1])
    moment = Moment(10, 1.0, "broadcast_next")
    found = {r.what: r for r in task_records(moment, logits, labels, np.array([0, 0, 1]), 2, 3, 0)}
    assert found["class_auc_0"].value == 1.0 == found["class_accuracy_0"].value
    assert found["class_accuracy_1"].value == 0.5
    assert found["class_auc_2"].unit == "area"
    for what in ("class_auc_2", "class_accuracy_2"):
        value = found[what].value
        assert value is None or math.isnan(value)
    assert (found["group_accuracy_0"].value, found["group_accuracy_1"].value) == (1.0, 0.0)
    assert found["absent_classes"].value == 1


def test_a_diverged_model_is_right_nowhere() -> None:
    """To argmax a NaN is the largest, so that it would be right about the first class."""
    logits, labels = np.full((4, 2), np.nan), np.array([0, 0, 1, 1])
    found = {r.what: r.value for r in task_records(Moment(1, 1.0, "m"), logits, labels, labels, 2, None, None)}
    assert found["holdout_accuracy"] == found["holdout_ltr"] == found["holdout_group_accuracy_0"] == 0
    for what in ("holdout_auc", "holdout_loss", "holdout_class_auc_0"):
        assert found[what] is None or math.isnan(found[what])
    assert ltr.auc(ltr.softmax(logits), labels)[1] == "scores that are not numbers"


def test_confidence_interval_of_known_numbers() -> None:
    mean, low, high = ltr.confidence_interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert high - mean == pytest.approx(mean - low) == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    assert math.isnan(ltr.confidence_interval([1.0])[1])


def test_forgetting_and_transfer_of_a_known_matrix() -> None:
    matrix = np.array([[0.8, 0.1, 0.0], [0.6, 0.9, 0.2], [0.5, 0.7, 1.0]])
    assert ltr.forgetting(matrix) == pytest.approx((0.3 + 0.2) / 2)
    assert ltr.backward_transfer(matrix) == pytest.approx((-0.3 - 0.2) / 2)
    assert ltr.last_row(matrix) == pytest.approx((0.5 + 0.7 + 1.0) / 3)


def test_a_task_without_test_samples_is_left_out_not_zero(tmp_path: Path) -> None:
    matrix = np.array([[0.8, math.nan, 0.1], [0.6, math.nan, 0.3], [0.4, math.nan, 1.0]])
    assert ltr.cumulative(matrix) == pytest.approx([0.8, 0.7, (0.8 + 0.6 + 0.4 + 1.0) / 4])
    assert ltr.forgetting(matrix) == pytest.approx(0.4)
    assert ltr.last_row(matrix) == pytest.approx(0.7)
    assert math.isnan(ltr.cumulative(np.full((2, 2), math.nan))[1])
    for untested in (0, 1, 2):  # the last one, too
        run = read_medical(write_run(tmp_path / str(untested), "cb", 0, untested=untested), "x")
        assert {m.shape for m in run.local["ltr"].values()} == {(3, 3)}
        assert np.isnan(run.local["ltr"][0][:, untested]).all()
        values = [run.over_clients(f) for f in (ltr.last_row, ltr.forgetting, ltr.backward_transfer)]
        assert np.isfinite([*values, *run.cumulative()]).all()


def test_an_unfinished_run_has_no_final_figures(tmp_path: Path) -> None:
    run = read_medical(write_run(tmp_path / "broken", "cb", 0, reached=2), "broken")
    assert (run.missing, run.finished) == ([3], False)
    assert np.isfinite(run.cumulative()).tolist() == [True, True, False]
    finals = [run.final_holdout("ltr"), *(run.over_clients(f) for f in (ltr.last_row, ltr.forgetting))]
    assert np.isnan(finals).all()
    whole = read_medical(write_run(tmp_path / "whole", "cb", 1), "whole")
    assert whole.finished
    line = medical_table([run, whole]).splitlines()[2]
    assert line.split()[1:4] == ["1", "of", "2"]
    assert "±" not in line


def test_runs_that_differ_in_more_than_their_seed_are_told_apart(tmp_path: Path) -> None:
    places = [write_run(tmp_path / f"{lr}-{seed}", "cb", seed, lr=lr) for lr in (0.1, 0.5) for seed in (0, 1)]
    runs = [read_medical(place, place.name) for place in places]
    assert {title: [run.seed for run in same] for title, same in by_title(runs).items()} == {
        "F-CB (local.lr 0.1)": [0, 1],
        "F-CB (local.lr 0.5)": [0, 1],
    }
    for run, digest in zip(runs, ("d", None, "d", "e"), strict=True):
        run.config["data"]["root"] = f"at/{run.name}"  # paths say nothing
        run.tree = {"data": digest} if digest else {}
    assert list(by_title(runs[:2])) == ["F-CB"]
    assert list(by_title(runs[2:])) == ["F-CB (data.root at/0.5-0)", "F-CB (data.root at/0.5-1)"]
    again = read_medical(write_run(tmp_path / "again", "cb", 1), "again")
    kept, notes = without_repeats([*runs, again])
    assert kept == runs
    assert notes == ["again repeats 0.1-1 (same settings, seed 1): left out"]


def test_samples_of_unknown_demographics_are_no_side_of_a_gap(tmp_path: Path) -> None:
    place = write_run(tmp_path / "run", "cb", 0)
    both = read_medical(place, "x")
    (place / "scenario.json").write_text('{"groups": ["0-59", "not known"]}')
    one = read_medical(place, "x")
    (place / "scenario.json").write_text('{"groups": ["0-59", "60+"]}')
    named = read_medical(place, "x")
    for score in ("group_gap", "group_ltr_gap"):
        for run in (both, named):
            assert np.isfinite(run.local[score][0]).all()
            assert run.final_holdout(score) > 0
        assert np.isnan(one.local[score][0]).all()
        assert math.isnan(one.final_holdout(score))
    assert np.isfinite(one.local["group_accuracy_1"][0]).all(), "it is shown by itself"


def test_tasks_of_one_class_that_no_auc_is_the_mean_of_are_counted(tmp_path: Path) -> None:
    run = read_medical(write_run(tmp_path / "run", "cb", 0, untested=1), "x")
    (score,) = [s for s in DETAILS if "without AUC" in s.title]
    assert score.read(run) == 0
    run.local["auc"][1][-1, 2] = math.nan
    assert score.read(run) == pytest.approx(1 / 5), "of two clients with three tasks, one of which is not tested"
    assert math.isnan(score.read(read_medical(write_run(tmp_path / "begun", "cb", 0, reached=0), "x")))


def test_the_originals_ltr_counts_an_absent_class_as_zero(tmp_path: Path) -> None:
    run = read_medical(write_run(tmp_path / "run", "cb", 0), "x")
    before = run.local["ltr"][0]
    np.testing.assert_allclose(run.local["compat_ltr"][0], before, atol=1e-5)
    for by in run.local["class_accuracy_1"].values():
        by[:] = math.nan
    present = [run.local[f"class_accuracy_{c}"][0] for c in (0, 2)]
    _derive(run.local, "")
    np.testing.assert_allclose(run.local["compat_ltr"][0], sum(present) / 3, atol=1e-5)
    run.tree, run.config["recipe"]["classes"] = {"client_classes": [[0, 2], [0, 1, 2]]}, "environment"
    _derive(run.local, "", run.known_classes(local=True))
    np.testing.assert_allclose(run.local["compat_ltr"][0], sum(present) / 2, atol=1e-5)  # another dataset's class
    np.testing.assert_allclose(
        run.local["compat_ltr"][1], sum(run.local[f"class_accuracy_{c}"][1] for c in (0, 2)) / 3, atol=1e-5
    )
    rows = list(csv.DictReader(io.StringIO(fedmedicl_logs(run)["CB_test.csv"].decode())))
    told = {row["client_id"]: list(ast.literal_eval(row["test_per_category_acc_dict"])) for row in rows}
    assert told == {"0": [0, 2], "1": [0, 1, 2]}
    assert run.known_classes(local=False)
    run.config["recipe"]["classes"] = "all"
    assert not run.known_classes(local=False)
