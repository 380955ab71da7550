"""The table of what each node sent: sums over a run, shares of its time, the slowest nodes of many."""

from __future__ import annotations

import pytest

from fedhpc.report import report
from fedhpc.report.collect import read_run
from fedhpc.report.traffic import traffic_csv, traffic_table
from fedhpc.runs.records import Record, RecordWriter
from tests.report.synthetic import write_run


def with_traffic(run, hosts, times=1, read=0.5):
    with RecordWriter(run / "metrics.jsonl") as writer:
        for number in range(1, times + 1):
            writer.write(Record("wait_seconds", 0.5, "s", number, 2.0 * number))
            writer.write(Record("communicate_seconds", 0.1, "s", number, 2.0 * number))
            for host, seconds in hosts.items():
                writer.write(Record("loop_seconds", 10.0, "s", number, 2.0 * number, host=host))
                writer.write(Record("read_seconds", read * seconds, "s", number, 2.0 * number, host=host))
                for what, value in (("calls", 4), ("bytes", 1000), ("seconds", seconds)):
                    where = {"host": host, "collective": "reduce"}
                    writer.write(Record(f"collective_{what}", value, "", number, 2.0 * number, **where))
    return run


def test_what_is_recorded_at_several_checkpoints_adds_up(tmp_path):
    run = read_run(with_traffic(write_run(tmp_path / "a"), {"node1": 1.0, "node2": 4.0}, times=3))
    assert [(c.host, c.calls, c.bytes, c.seconds, c.share) for c in run.collectives] == [
        ("node1", 12, 3000, 3.0, pytest.approx(0.1)),
        ("node2", 12, 3000, 12.0, pytest.approx(0.4)),
    ]
    assert (run.wait_share, run.communicate_share) == (pytest.approx(0.25), pytest.approx(0.05))
    assert run.read_share == pytest.approx(0.2), "of the node that reads longest"
    lines = traffic_table(run).splitlines()
    assert lines[1].split()[:3] == ["node", "collective", "calls"]
    assert lines[2].split() == ["node2", "reduce", "12", "3000", "12", "40.0"], "the slowest first"
    assert "a,node1,reduce,12,3000,3.0," in traffic_csv([run])


def test_of_many_nodes_the_slowest_are_shown_and_the_rest_is_in_the_file(tmp_path):
    made = report([with_traffic(write_run(tmp_path / "a"), {f"n{i:02}": float(i) for i in range(20)})])
    assert "n19  " in made.text
    assert "n11  " not in made.text
    assert "and 12 more node(s): see traffic.csv" in made.text
    assert (made.directory / "traffic.csv").read_text().count("\n") == 21


def test_runs_without_these_records_have_no_such_table(tmp_path):
    run = read_run(write_run(tmp_path / "a"))
    assert (traffic_table(run), traffic_csv([run]), run.collectives) == ("", "", ())
    assert (run.wait_share, run.read_share) == (None, None)
