"""From records of medical runs to matrices, tables and figures."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from fedhpc.medical.scores import Moment, task_records
from fedhpc.report import ltr, report
from fedhpc.report.medical import by_title, is_medical, medical_table, read_medical
from fedhpc.report.medical_plots import contrast_plot, medical_plots
from fedhpc.runs.records import RecordWriter

CONFIG = """seed: {seed}
data: {{dataset: medical_digits}}
scenario: {{kind: novel_disease, novel_class: -1}}
recipe: {{name: {recipe}}}
algorithm: {{name: fedavg}}
"""


def write_run(place: Path, recipe: str, seed: int, tasks: int = 3, clients: int = 2, bonus: float = 0.0) -> Path:
    """Made-up logits: what was trained longer ago is known less."""
    place.mkdir(parents=True)
    (place / "config.yaml").write_text(CONFIG.format(seed=seed, recipe=recipe))
    rng = np.random.default_rng(seed)
    labels, groups = rng.integers(0, 3, 60), rng.integers(-1, 2, 60)
    with RecordWriter(place / "metrics.jsonl") as writer:
        for trained in range(tasks):
            moment = Moment((trained + 1) * 10, float(trained), "broadcast_next")
            for client in range(clients):
                for task in range(tasks):
                    skill = 2.0 + bonus - 0.5 * abs(trained - task)
                    logits = rng.normal(size=(60, 3)) + skill * np.eye(3)[labels]
                    writer.write_all(task_records(moment, logits, labels, groups, 2, client, task))
            logits = rng.normal(size=(60, 3)) + np.eye(3)[labels] * np.array([2, 2, float(trained)])
            writer.write_all(task_records(moment, logits, labels, groups, 2, None, None))
    return place


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


def test_figures_are_drawn_and_repeatable(runs) -> None:  # type: ignore[no-untyped-def]
    files = medical_plots(runs)
    names = {"medical_tasks", "medical_holdout_ltr", "medical_holdout_auc", "medical_novel"}
    assert set(files) == {f"{name}.{form}" for name in names for form in ("png", "svg")}
    assert files == medical_plots(runs)
    assert medical_plots(runs[:1])  # one seed: no interval
    contrast = contrast_plot({"digits": {"0-59": [1.0, 2.0, 3.0], "60+": [2.0, 3.0, 4.0]}})
    assert contrast["contrast.png"].startswith(b"\x89PNG")


def test_a_report_has_the_medical_tables_and_figures(tmp_path: Path) -> None:
    for recipe, bonus in (("cb", 1.0), ("erm", -1.0)):
        for seed in (0, 1):
            write_run(tmp_path / f"{recipe}-seed{seed}", recipe, seed, bonus=bonus)
    (tmp_path / "scenario").mkdir()
    (tmp_path / "scenario" / "contrast.json").write_text('{"digits": {"0-59": [1, 2, 3], "60+": [2, 3, 5]}}')
    written = report([tmp_path])
    assert "F-CB" in written.text
    assert "hold-out LTR" in written.text
    names = {path.name for path in written.files}
    assert {"medical.txt", "medical.csv", "medical.tex", "medical.json", "medical_novel.png", "contrast.svg"} <= names
    rows = json.loads((tmp_path / "report" / "medical.json").read_text())
    assert len(rows) == 2 * 7
    by_hand = [read_medical(tmp_path / f"cb-seed{seed}", "").final_holdout("ltr") for seed in (0, 1)]
    found = next(row for row in rows if row["recipe"] == "F-CB" and row["score"] == "hold-out LTR")
    assert found["mean"] == pytest.approx(np.mean(by_hand))
    assert found["low"] < found["mean"] < found["high"]
    assert (tmp_path / "report" / "medical.csv").read_text().count("\n") == 1 + 14
    assert (tmp_path / "report" / "medical.tex").read_text().count(r"\\") == 1 + 1 + 2


def test_a_report_without_medical_runs_is_as_before(tmp_path: Path) -> None:
    place = write_run(tmp_path / "run", "cb", 0)
    (place / "config.yaml").write_text("seed: 0\n")
    assert not any(path.name.startswith("medical") for path in report([tmp_path]).files)


def test_what_was_not_recorded_is_missing_not_zero(tmp_path: Path) -> None:
    place = tmp_path / "empty"
    place.mkdir()
    (place / "config.yaml").write_text(CONFIG.format(seed=0, recipe="cb"))
    (place / "metrics.jsonl").touch()
    run = read_medical(place, "empty")
    assert math.isnan(run.final_holdout("ltr"))
    assert medical_table([run]).splitlines()[2].split()[2:] == ["-"] * 7
    assert medical_plots([run]) == {}


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
