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
    assert (found["accuracy (%)"], found["min (%)"], found["client std (%)"]) == ("91.0", "85.0", "4.5")
    assert (found["at target (round)"], found["at target (s)"], found["per round (s)"]) == ("3", "6", "2")
    assert (found["dataset"], found["status"]) == ("digits", "finished")


def test_several_runs_are_a_table_with_dashes_and_remedies(runs, tmp_path):
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
        "-",
        "unfinished",
    ]
    place = tmp_path / "c"
    advice = (
        f"c: is not finished; if nothing runs there, go on with: fedhpc run {place}/config.yaml --out {place} --resume"
    )
    assert advice in lines


def test_what_tells_runs_apart_has_a_column_where_it_differs(tmp_path):
    write_run(tmp_path / "a", local={"lr": 0.1}, test_samples=40)
    write_run(
        tmp_path / "b", local={"lr": 0.05, "objective": "irm"}, seed=3, test_samples=80, model={"name": "mnist_cnn"}
    )
    write_run(tmp_path / "c", partition={"kind": "by_environment"}, generalize={"test_envs": [1, 2]})
    a, b, c = (read_run(tmp_path / name) for name in "abc")
    assert text_table([a, a]).split()[:3] == ["run", "algorithm", "clients"]
    head, _, _, one, other = text_table([a, b]).splitlines()[:5]
    shown = ["objective", "lr", "seed", "model", "test samples", "clients"]
    places = [head.index(title) for title in shown]
    assert places == sorted(places)
    assert one.split()[2:7] == ["erm", "0.1", "0", a.model, "40"]
    assert other.split()[2:7] == ["irm", "0.05", "3", "mnist_cnn", "80"]
    assert "held out" not in head
    assert "held out" in text_table([a, c])
    assert r"& 1,2 &" in latex_table([a, c])
    assert next(csv.DictReader(io.StringIO(csv_table([b]))))["objective"] == "irm"


def test_personalised_runs_show_the_objective_that_personalisation_brings(tmp_path):
    for method in ("none", "maml", "proto"):
        write_run(tmp_path / method, personalize={"method": method})
    runs = [read_run(tmp_path / method) for method in ("none", "maml", "proto")]
    assert [run.objective for run in runs] == ["erm", "maml", "proto"]
    assert "objective" in text_table(runs).splitlines()[0]


def test_runs_of_different_tasks_are_told_once(tmp_path):
    write_run(tmp_path / "a", data={"dataset": "digits", "root": "x"}, algorithm="fedprox", local={"lr": 0.1})
    write_run(tmp_path / "b", data={"dataset": "digits", "root": "y"})
    write_run(tmp_path / "c", partition={"kind": "iid", "clients": 5})
    a, b, c = (read_run(tmp_path / name) for name in "abc")
    assert "not of one task" not in text_table([a, b])
    (line,) = [line for line in text_table([a, b, c]).splitlines() if "not of one task" in line]
    assert "partition.clients" in line
    assert "local.lr" not in line
    (tmp_path / "a" / "partition.json").write_text('{"data": "1"}')
    (tmp_path / "b" / "partition.json").write_text('{"data": "2"}')
    text = text_table([read_run(tmp_path / name) for name in "ab"])
    assert "they differ in the content of data.root" in text


def test_runs_that_ended_at_the_target_are_told(tmp_path):
    """What stopped them is what they are reported on."""
    early, late = read_run(write_run(tmp_path / "a", planned=50)), read_run(write_run(tmp_path / "b"))
    for text in (text_table([early, late]), latex_table([early]), json_summary([early])):
        assert "ended at the target, before their last round: a; " in text
    assert "ended at the target" not in text_table([late])


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
