"""The job's end: read from the environment or asked of the batch system; a run stops while a round still fits."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fedhpc.comm.deadline import JOB_END, Deadline, clock_seconds, job_end


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-02:03:04", 93784.0),
        ("02:03:04", 7384.0),
        ("03:04", 184.0),
        ("0:58:00", 3480.0),
        ("UNLIMITED", None),
        ("INVALID", None),
        ("", None),
        (None, None),
        ("5", None),
    ],
)
def test_times_as_batch_systems_write_them(text: str | None, seconds: float | None) -> None:
    assert clock_seconds(text) == seconds


def test_the_end_comes_from_the_environment_where_it_is_there() -> None:
    assert job_end({}) is None
    assert job_end({"SLURM_JOB_END_TIME": "1800000000", "SLURM_JOB_ID": "7"}) == 1.8e9
    assert job_end({JOB_END: "1700000000", "SLURM_JOB_END_TIME": "1800000000"}) == 1.7e9


@pytest.mark.parametrize(
    ("variable", "name", "answer", "left"),
    [
        ("SLURM_JOB_ID", "squeue", "1:30", 90),
        ("PBS_JOBID", "qstat", "Job Id: 7\\n    Resource_List.walltime = 01:00:00\\n    stime = {ago600}", 3000),
        # what was used is known late: 20 s are left, not 170
        (
            "PBS_JOBID",
            "qstat",
            "    resources_used.walltime = 00:57:10\\n    Resource_List.walltime = 01:00:00\\n    stime = {ago3580}",
            20,
        ),
        ("PBS_JOBID", "qstat", "    Resource_List.walltime = 01:00:00", None),
        ("LSB_JOBID", "bjobs", "1:05 L", 3900),
        ("FLUX_JOB_ID", "flux", "77.5", 77.5),
        ("SLURM_JOB_ID", "squeue", "UNLIMITED", None),
    ],
)
def test_the_batch_system_is_asked_by_command(
    variable: str, name: str, answer: str, left: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, name, answer.format(ago600=ago(600), ago3580=ago(3580)))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    end = job_end({variable: "7"})
    assert (end is None) == (left is None)
    if left is not None and end is not None:
        assert abs(end - time.time() - left) < 15


@pytest.mark.parametrize(
    ("variables", "name", "asked"),
    [
        ({"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}, "squeue", "7_3"),
        ({"SLURM_JOB_ID": "7"}, "squeue", "7"),
        ({"PBS_JOBID": "7[3].head"}, "qstat", "7[3].head"),
        ({"LSB_JOBID": "7", "LSB_JOBINDEX": "3"}, "bjobs", "7[3]"),
        ({"LSB_JOBID": "7", "LSB_JOBINDEX": "0"}, "bjobs", "7"),
    ],
)
def test_a_member_of_an_array_asks_for_itself_and_not_for_all(
    variables: dict[str, str], name: str, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/words\n')
    (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    job_end(variables)
    assert asked in (tmp_path / "words").read_text().splitlines()


def test_no_batch_system_and_one_that_does_not_answer_give_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert job_end({"SLURM_JOB_ID": "7"}) is None
    assert not Deadline(ask=lambda: None).is_near(1)


def ago(seconds: float) -> str:
    return time.ctime(time.time() - seconds)


def tool(folder: Path, name: str, answer: str) -> None:
    script = folder / name
    script.write_text(f'#!/bin/sh\nprintf "{answer}\\n"\n')
    script.chmod(0o755)


@pytest.mark.parametrize(
    ("variables", "name", "answer"),
    [
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "{soon}"}, "squeue", "2:00:00"),
        ({"PBS_JOBID": "7", JOB_END: "{soon}"}, "qstat", "    Resource_List.walltime = 02:00:00\\n    stime = {now}"),
    ],
)
def test_an_extended_limit_is_noticed_although_the_environment_has_the_old_one(
    variables: dict[str, str], name: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value.format(soon=int(time.time()) + 5))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert Deadline().is_near(1), "the batch system does not answer: what the job was told counts"
    tool(tmp_path, name, answer.format(now=ago(0)))
    assert not Deadline().is_near(1)


@pytest.mark.parametrize(("answer", "left"), [("0:00:30", 30), ("0:02:30", 60), ("0:20:00", 1200)])
def test_an_end_a_little_later_than_told_is_a_late_answer_not_an_extension(
    answer: str, left: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, "squeue", answer)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    now = time.time()
    end = job_end({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": str(int(now) + 60)}, fresh=True)
    assert end is not None
    assert abs(end - now - left) < 15


def test_the_time_that_a_question_takes_counts() -> None:
    clock = [0.0]

    def slow() -> float:
        clock[0] += 20.0
        return 1000.0

    deadline = Deadline(ask=lambda: 995.0, again=slow, now=lambda: clock[0])
    clock[0] = 2.0
    assert not deadline.is_near(0)
    clock[0] = 984.0  # 1.5 x 2 s + 10 s are needed; 16 s would be left, but the question takes 20 s
    assert deadline.is_near(0)


def test_a_batch_system_that_did_not_answer_is_asked_again_but_rarely() -> None:
    clock, asked = [0.0], []

    def again() -> float | None:
        asked.append(clock[0])
        return None if len(asked) < 3 else 2500.0

    deadline = Deadline(ask=lambda: None, again=again, now=lambda: clock[0])
    stopped = None
    while stopped is None:
        clock[0] += 50.0
        stopped = clock[0] if deadline.is_near(int(clock[0] / 50)) else None
    assert [at for at in asked if at < 2000] == [600.0, 1200.0, 1800.0]
    assert stopped == 2450.0  # 1.5 x 50 s + 10 s no longer fit


def test_a_run_stops_when_one_and_a_half_rounds_a_checkpoint_and_the_way_out_no_longer_fit() -> None:
    clock = [0.0]
    deadline = Deadline(ask=lambda: 1000.0, again=lambda: 1000.0, now=lambda: clock[0])
    stops = {}
    for round in range(40):
        clock[0] += 100.0 if round == 3 else 40.0
        stops[round] = deadline.is_near(round, save_seconds=50.0)
    # 1.5 x 100 s + 50 s + 10 s = 210 s: nothing at 780 s passed (round 17), a stop at 820 s (round 18)
    assert next(round for round, stop in stops.items() if stop) == 18


def test_asking_twice_in_a_round_does_not_halve_its_length() -> None:
    clock = [0.0]
    deadline = Deadline(ask=lambda: 100.0, again=lambda: 100.0, now=lambda: clock[0])
    for at, round in [(10, 0), (20, 0), (30, 1), (40, 1), (50, 2)]:
        clock[0] = float(at)
        assert not deadline.is_near(round)
    clock[0] = 65.0
    assert deadline.is_near(2)  # 1.5 x 20 s + 10 s > 35 s


def test_a_limit_that_was_extended_is_noticed() -> None:
    ends = [100.0, 500.0]
    clock = [0.0]
    deadline = Deadline(ask=lambda: ends.pop(0), again=lambda: ends.pop(0), now=lambda: clock[0])
    clock[0] = 95.0
    assert not deadline.is_near(0)
    assert ends == []
