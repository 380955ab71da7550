"""Phases of a rank as a trace that a browser opens."""

from __future__ import annotations

import json

import pytest

from fedhpc.runs import trace
from fedhpc.runs.environment import describe_environment
from fedhpc.runs.trace import trace_events, trace_file
from fedhpc.timing import Stopwatch


def test_events_are_complete_and_in_microseconds() -> None:
    clock = Stopwatch()
    with clock.phase("train", client=3, round=1), clock.phase("inner"):
        pass
    (inner, outer), left = trace_events(clock, rank=2)
    assert left == 0
    assert (outer["name"], outer["ph"], outer["pid"], outer["args"]) == ("train", "X", 2, {"client": 3, "round": 1})
    assert outer["ts"] <= inner["ts"]
    assert outer["ts"] + outer["dur"] >= inner["ts"] + inner["dur"] - 1
    assert outer["dur"] == round(clock.events[1].seconds * 1e6)
    json.dumps([inner, outer])


def test_long_runs_keep_the_first_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_MOST", 2)
    events, left = trace_events(four_phases(), 0)
    assert [e["args"]["client"] for e in events] == [0, 1]
    assert left == 2


def test_many_ranks_share_the_room_and_the_file_says_what_is_missing() -> None:
    """What all ranks give must fit into one message, however many they are."""
    for ranks in (100_000, 50_000_000):
        events, left = trace_events(four_phases(), 7, ranks)
        assert len(events) * ranks <= max(trace._MOST_OF_ALL, ranks)
        assert len(events) + left == 4
    whole = trace_file([trace_events(four_phases(), rank, 100_000) for rank in range(3)])
    assert len(whole["traceEvents"]) == 6
    assert whole["otherData"] == {"events_left_out": 6}


def four_phases() -> Stopwatch:
    clock = Stopwatch()
    for i in range(4):
        with clock.phase("train", client=i):
            pass
    return clock


def test_environment_says_where_results_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.delenv("PBS_JOBID", raising=False)
    found = describe_environment([{"rank": 0, "host": "n0"}], "")
    assert found["job"]["SLURM_JOB_ID"] == "4711"
    assert "PBS_JOBID" not in found["job"]
    assert found["packages"]["torch"].split(".")[0].isdigit()
    assert found["ranks"] == [{"rank": 0, "host": "n0"}]
    json.dumps(found)
