"""Studies under real mpirun: interleaved, resumable, shared by several jobs."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from launcher import REPOSITORY, mpirun, start

from fedhpc.commands._study_plan import study_status
from fedhpc.report.studies import read_plan, study_notes

STUDY = REPOSITORY / "configs" / "smoke" / "quickstart_study.yaml"
SHORT = ["--rounds=4", "--evaluate.target_accuracy=null", "--checkpoint.every=1", "--cohort.size=5"]


def args(out: Path, *more: str) -> list[str | Path]:
    return ["-m", "fedhpc", "study", STUDY, "--out", out, *SHORT, *more]


def hashes(out: Path) -> dict[str, str]:
    return {d.parent.name: json.loads(d.read_text())["weights_sha256"] for d in sorted(out.glob("*/done"))}


def test_study_goes_on_where_it_was_stopped_and_pairs_its_runs(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    done = mpirun(2, args(whole, "--seeds=[0,1]"))
    assert done.returncode == 0, done.stderr
    order = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("[")]
    assert order == [
        *("fedavg-seed0", "feddyn-seed0", "scaffold-seed0"),
        *("feddyn-seed1", "scaffold-seed1", "fedavg-seed1"),
    ]
    assert len(hashes(whole)) == 6
    assert [run.seed for run in read_plan(whole).values()] == [0, 0, 0, 1, 1, 1]
    assert study_notes([whole]) == []
    first = [
        [json.loads(line)["value"] for line in (run / "metrics.jsonl").read_text().splitlines() if '"round":0' in line]
        for run in (whole / "fedavg-seed0", whole / "scaffold-seed0")
    ]
    assert first[0][:-1] == first[1][:-1], "the same seed starts from the same model"

    told = tmp_path / "exit"
    job = start(3, args(broken, "--seeds=[0,1]", "--rounds=20", f"--exit-file={told}"))
    end = time.monotonic() + 60
    while not (broken / "feddyn-seed0" / "checkpoints").exists():
        assert time.monotonic() < end, job.out + job.err
        time.sleep(0.02)
    os.kill(job.pid, signal.SIGUSR1)
    assert job.wait(timeout=15) == 75, job.out + job.err
    assert (broken / "fedavg-seed0" / "done").exists()
    assert not told.exists(), "there is more to do"
    (said,) = study_notes([broken])
    assert "5 of 6 planned runs are not finished: feddyn-seed0 (unfinished), scaffold-seed0 (not begun)" in said
    again = mpirun(1, args(broken, "--seeds=[0,1]", "--rounds=20", f"--exit-file={told}"))
    assert again.returncode == 0, again.stderr
    assert told.read_text() == "0\n"
    assert "fedavg-seed0: the run is finished" in again.stdout
    assert len(hashes(broken)) == 6
    undisturbed = mpirun(1, args(tmp_path / "third", "--rounds=20"))
    assert undisturbed.returncode == 0
    assert hashes(tmp_path / "third").items() <= hashes(broken).items()


def test_two_jobs_share_a_study_and_each_run_is_done_once(tmp_path: Path) -> None:
    files = [tmp_path / "log" / name for name in ("first", "second")]
    files[0].parent.mkdir()
    jobs = [start(1, args(tmp_path, "--rounds=150", "--checkpoint.every=0", f"--exit-file={f}")) for f in files]
    assert [job.wait(timeout=90) for job in jobs] == [0, 0], jobs[0].err + jobs[1].err
    assert len(hashes(tmp_path)) == 3
    told = [sum("done after round" in line for line in job.out.splitlines()) for job in jobs]
    assert sum(told) == 3
    assert any("another job works on it" in job.out for job in jobs)
    assert [f.read_text() for f in files] == ["0\n", "0\n"], "also of the job that left the rest to the other"


def test_a_run_that_fails_does_not_end_the_study(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        (REPOSITORY / "configs" / "smoke" / "hem" / "fedavg.yaml").read_text().replace("lr: 0.1", "lr: 1e30")
    )
    good = REPOSITORY / "configs" / "smoke" / "hem" / "scaffold.yaml"
    words = ["study", bad, good, "--out", tmp_path / "s", "--exit-file", tmp_path / "exit", "--local.clip=null"]
    done = mpirun(2, ["-m", "fedhpc", *words, *SHORT])
    assert done.returncode == 1
    assert (tmp_path / "exit").read_text() == "1\n"
    assert "bad-seed0" in done.stderr
    assert "diverged" in done.stderr
    assert list(hashes(tmp_path / "s")) == ["scaffold-seed0"]
    states = {name: state for name, _, state, _ in study_status(tmp_path / "s", []).runs}
    assert states == {"bad-seed0": "failed", "scaffold-seed0": "done"}


def test_bad_study_ends_before_anything_runs(tmp_path: Path) -> None:
    done = mpirun(2, args(tmp_path / "s", "--algorithm.alphaa=1"))
    assert done.returncode == 2
    assert done.stderr.count("fedhpc: error") == 1
    assert not (tmp_path / "s").exists()
