from __future__ import annotations

import csv
import io
import json

import pytest

from fedhpc.report.collect import collect, read_run
from fedhpc.report.tables import csv_table, json_summary, latex_table, text_table
from tests.report.synthetic import write_run


@pytest.fixture
def runs(tmp_path):
    write_run(tmp_path / "a_1")
    write_run(tmp_path / "b", (0.1, 0.2), algorithm="fedprox")
    write_run(tmp_path / "c", (0.1, 0.2), finished=False)
    write_run(tmp_path / "d", (None, None), target=None, finished=False)
    return collect([tmp_path / name for name in ("a_1", "b", "c", "d")])


def test_one_run_is_a_list_of_figures(tmp_path):
    lines = text_table([read_run(write_run(tmp_path / "a"))]).splitlines()
    found = {line[:18].strip(): line[18:].strip() for line in lines}
    assert found["run"] == "a"
    assert (found["accuracy (%)"], found["min (%)"], found["std (%)"]) == ("91.0", "85.0", "4.5")
    assert (found["at target (round)"], found["at target (s)"], found["per round (s)"]) == ("3", "6", "2")
    assert (found["dataset"], found["status"]) == ("digits", "finished")


def test_several_runs_are_a_table_with_dashes_and_remedies(runs):
    lines = text_table(runs).splitlines()
    assert lines[0].split()[:3] == ["run", "algorithm", "clients"]
    assert [line.split()[0] for line in lines[3:7]] == ["a_1", "b", "c", "d"]
    assert lines[3].split()[-1] == "finished"
    assert "not reached" in lines[4]
    assert "not yet" in lines[5]
    assert lines[6].split() == [
        "d",
        "fedavg",
        "4",
        "2",
        "1",
        "6",
        *"-----",
        "-",
        "-",
        "2",
        "-",
        "2",
        "-",
        "-",
        "unfinished",
    ]
    assert any(line.startswith("c: is not finished") and "--resume" in line for line in lines)


def test_a_damaged_run_is_marked_with_its_problem(tmp_path):
    (write_run(tmp_path / "a") / "done").write_text("{")
    text = text_table([read_run(tmp_path / "a")])
    assert "damaged" in text
    assert "a: " in text
    assert "done: is not JSON" in text


def test_csv_has_numbers_or_nothing(runs):
    rows = list(csv.DictReader(io.StringIO(csv_table(runs))))
    assert [row["run"] for row in rows] == ["a_1", "b", "c", "d"]
    assert (float(rows[0]["accuracy"]), rows[0]["target_round"], rows[0]["status"]) == (0.91, "3", "finished")
    assert (rows[1]["target_round"], rows[3]["accuracy"], rows[3]["min"]) == ("", "", "")


def test_latex_escapes_and_is_rectangular(runs):
    text = latex_table(runs)
    assert r"a\_1 & fedavg" in text
    assert r"accuracy (\%)" in text
    assert "c (unfinished)" in text
    assert len({line.count(" & ") for line in text.splitlines() if line.endswith(r"\\")}) == 1
    assert text.count(r"\\") == 5


def test_json_holds_everything_and_null_where_nothing_is_known(runs):
    tree = json.loads(json_summary(runs))
    assert tree["format"] == 1
    first, last = tree["runs"][0], tree["runs"][3]
    assert first["final_client_accuracy"] == 0.91
    assert first["time_to_accuracy"] == {"round": 3, "seconds": 6.0}
    assert [e["mean"] for e in first["evaluations"]] == [0.1, 0.5, 0.8, 0.91]
    assert (last["final_client_accuracy"], last["seconds_evaluate"], last["evaluations"]) == (None, None, [])
