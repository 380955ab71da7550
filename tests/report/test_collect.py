from __future__ import annotations

import json

import pytest

from fedhpc.errors import ConfigError
from fedhpc.report.collect import collect, find_runs, read_run
from fedhpc.runs.records import Record, RecordWriter
from tests.report.medical_runs import write_run as write_medical
from tests.report.synthetic import write_run


def test_a_finished_run(tmp_path):
    run = read_run(write_run(tmp_path / "a", algorithm="fedprox"))
    assert (run.name, run.status, run.problems, run.algorithm, run.partition) == ("a", "finished", (), "fedprox", "iid")
    assert (run.rounds, run.rounds_planned, run.clients, run.ranks) == (3, 3, 4, 2)
    assert run.final_client_accuracy == 0.91
    assert run.final is not None
    assert (run.final.min, run.final.worst_decile) == (pytest.approx(0.85), pytest.approx(0.85))
    assert [(e.round, e.seconds, e.mean) for e in run.evaluations] == [
        (0, 0, 0.1),
        (1, 2, 0.5),
        (2, 4, 0.8),
        (3, 6, 0.91),
    ]
    assert run.time_to_accuracy == {"round": 3, "seconds": 6.0}
    assert (run.seconds_train, run.seconds_evaluate, run.seconds_per_round, run.imbalance) == (6.0, 2.0, 2.0, 1.5)
    assert (run.weights_sha256, run.diverged) == ("ab" * 32, 0)


def test_an_unfinished_run_shows_what_there_is_so_far(tmp_path):
    run = read_run(write_run(tmp_path / "a", finished=False))
    assert (run.status, run.rounds, run.rounds_planned) == ("unfinished", 3, 8)
    assert (run.final_client_accuracy, run.seconds_train, run.seconds_evaluate) == (0.91, 6.0, 2.0)
    assert run.time_to_accuracy == {"round": 3, "seconds": 6.0}
    assert run.weights_sha256 is None


def test_a_target_that_was_not_reached_is_null(tmp_path):
    assert read_run(write_run(tmp_path / "a", (0.1, 0.2))).time_to_accuracy is None
    assert read_run(write_run(tmp_path / "b", (0.1, 0.2), finished=False)).time_to_accuracy is None
    assert read_run(write_run(tmp_path / "c", (0.1, 0.95), target=None, finished=False)).time_to_accuracy is None
    just = read_run(write_run(tmp_path / "d", (0.1, 0.9 - 1e-16), finished=False))
    assert just.time_to_accuracy == {"round": 1, "seconds": 2.0}, "as the run itself would say"


def test_a_run_that_just_began_has_nothing_rather_than_zeros(tmp_path):
    write_run(tmp_path / "a", finished=False)
    (tmp_path / "a" / "metrics.jsonl").unlink()
    run = read_run(tmp_path / "a")
    assert (run.status, run.clients, run.evaluations) == ("unfinished", 4, ())
    unknown = (run.rounds, run.final_client_accuracy, run.seconds_train, run.seconds_evaluate, run.seconds_per_round)
    assert {*unknown, run.diverged, run.bytes_moved, run.waiting_share} == {None}


def test_the_torn_last_line_of_a_running_run_is_no_damage(tmp_path):
    write_run(tmp_path / "a", finished=False)
    with (tmp_path / "a" / "metrics.jsonl").open("a") as file:
        file.write('{"what":"client_acc')
    assert read_run(tmp_path / "a").status == "unfinished"


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("done", "", "done: is not JSON"),
        ("done", "[1]", "done: is not a JSON object"),
        ("done", '{"rounds": 7}', "ends at round 3, done says 7"),
        ("config.yaml", None, "config.yaml: no such configuration file"),
        ("config.yaml", "a: [", "config.yaml: line"),
        ("metrics.jsonl", None, "metrics.jsonl: cannot be read: No such file"),
        ("metrics.jsonl", "{}\n", "metrics.jsonl: line 1 has no 'what'"),
        ("environment.json", "{", "environment.json: is not JSON"),
        ("environment.json", "\udcff", "environment.json: is not JSON"),
    ],
)
def test_a_damaged_run_says_what_is_damaged_and_shows_the_rest(tmp_path, name, content, part):
    path = write_run(tmp_path / "a") / name
    path.unlink()
    if content is not None:
        path.write_text(content, errors="surrogateescape")
    run = read_run(tmp_path / "a")
    assert run.status == "damaged"
    assert any(part in problem for problem in run.problems), run.problems
    assert run.rounds in (3, 7)


@pytest.mark.parametrize(
    "done", ['{"rounds": "x", "seconds_train": null}', '{"time_to_accuracy": [1]}', '{"seconds_train": NaN}']
)
def test_odd_values_in_done_are_taken_as_missing(tmp_path, done):
    (write_run(tmp_path / "a") / "done").write_text(done)
    run = read_run(tmp_path / "a")
    assert (run.rounds, run.seconds_train) == (3, 6.0)


def test_the_configured_model_is_shown_or_the_one_there_is(tmp_path):
    directory = write_run(tmp_path / "a")
    with RecordWriter(directory / "metrics.jsonl") as writer:
        writer.write(Record("client_accuracy_mean", 0.99, "fraction", 3, 6.0, model="avg_all"))
    assert read_run(directory).evaluated_model == "broadcast_next"
    text = (directory / "metrics.jsonl").read_text().replace("broadcast_next", "avg_selected")
    (directory / "metrics.jsonl").write_text(text)
    run = read_run(directory)
    assert (run.evaluated_model, len(run.evaluations)) == ("avg_selected", 4)


def test_rounds_without_evaluation_are_left_out(tmp_path):
    run = read_run(write_run(tmp_path / "a", (0.1, None, None, 0.6)))
    assert [e.round for e in run.evaluations] == [0, 3]
    assert run.rounds == 3


def test_a_study_is_searched_two_levels_deep_and_not_into_runs(tmp_path):
    for name in ("study/seed10", "study/seed2", "study/more/seed1", "study/a/b/too_deep", "study/seed2/log/inner"):
        write_run(tmp_path / name)
    (tmp_path / "study" / "report").mkdir()
    write_run(tmp_path / "study" / ".hidden")
    found = find_runs([tmp_path / "study"])
    assert [str(p.relative_to(tmp_path)) for p in found] == ["study/more/seed1", "study/seed2", "study/seed10"]
    assert [run.name for run in collect(found)] == ["more/seed1", "seed2", "seed10"]


def test_a_run_named_twice_counts_once_and_names_tell_runs_apart(tmp_path):
    a, b = write_run(tmp_path / "x" / "run"), write_run(tmp_path / "y" / "run")
    found = find_runs([a, tmp_path / "x", b, tmp_path / "x" / ".." / "x" / "run"])
    assert found == [a, b]
    assert [run.name for run in collect(found)] == ["x/run", "y/run"]


def test_what_is_no_run_is_named(tmp_path):
    (tmp_path / "file").write_text(json.dumps({}))
    for name, part in (("absent", "no such directory"), ("file", "is not a directory"), (".", "holds no run")):
        with pytest.raises(ConfigError, match=part):
            find_runs([tmp_path / name])


def test_sweeps_are_not_taken_for_broken_runs(tmp_path):
    """Neither a folder of DomainBed's runs, which have a file `done`, nor a sweep of ours."""
    for run in ("theirs/a1", "theirs/b2"):
        (tmp_path / run).mkdir(parents=True)
        (tmp_path / run / "results.jsonl").touch()
        (tmp_path / run / "done").touch()
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "plan.json").touch()
    with pytest.raises(ConfigError, match=rf"report on one at a time: {tmp_path}/ours, {tmp_path}/theirs"):
        find_runs([tmp_path])
    run = write_run(tmp_path / "run")
    assert find_runs([tmp_path]) == [run]


def test_rounds_of_medical_runs_are_those_of_all_tasks(tmp_path):
    run = write_medical(tmp_path / "a", "cb", 0)
    assert read_run(run).rounds_planned == 30
    (run / "scenario.json").write_text('{"tasks": 4}')
    assert read_run(run).rounds_planned == 40


@pytest.mark.parametrize("content", ["[]", "{", '{"clients": 3}', '{"clients": [{"num_test": null}]}', '{"data": 3}'])
def test_odd_facts_about_data_are_taken_as_missing(tmp_path, content):
    (write_run(tmp_path / "a") / "partition.json").write_text(content)
    run = read_run(tmp_path / "a")
    assert (run.status, run.test_samples, run.data_digest) == ("finished", None, None)
