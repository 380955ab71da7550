"""Ranks are killed under `mpirun --with-ft ulfm`: the others redo the round and finish."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from launcher import REPOSITORY, MpiJob, environment, find_mpirun, ranks_of, session_of, still_alive

from fedhpc.runs.checkpoint import CheckpointFolder

CONFIG = REPOSITORY / "configs" / "smoke" / "quickstart.yaml"
OPTIONS = ["--evaluate.target_accuracy", "null", "--evaluate.every", "1000", "--on_rank_loss", "continue"]


class SurvivingJob(MpiJob):
    """An mpirun whose ranks may live on."""

    def __init__(self, n: int, args: list[str | Path]) -> None:
        flags = ["--with-ft", "ulfm", "--mca", "async_mpi_finalize", "1"]
        super().__init__(
            [str(find_mpirun()), "-n", str(n), *flags, sys.executable, *map(str, args)], environment(), REPOSITORY
        )


def run_args(out: Path, rounds: int, *options: str) -> list[str | Path]:
    return ["-m", "fedhpc", "run", CONFIG, "--out", out, "--rounds", str(rounds), *OPTIONS, *options]


def has_ulfm() -> bool:
    info = find_mpirun().with_name("ompi_info")
    if not info.exists():
        return False
    text = subprocess.run([info], capture_output=True, text=True, timeout=60).stdout
    return re.search(r"Fault Tolerance support: yes", text) is not None


def wait_for_round(job: MpiJob, number: int) -> None:
    end = time.monotonic() + 120
    while not any(int(r) >= number for r in re.findall(r"round (\d+)/", job.out)):
        assert job.poll() is None, job.out + job.err
        assert time.monotonic() < end, job.out + job.err
        time.sleep(0.05)


def records(out: Path, what: str) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["what"] == what]


def means_hold(out: Path) -> bool:
    """Whether SCAFFOLD's control of the server is the mean of the clients'."""
    saved = CheckpointFolder(out / "checkpoints", 1).latest(print)
    assert saved is not None
    controls = torch.stack(list(saved.client_states(range(20)).values()))
    return torch.allclose(saved.server()["vector.control"], controls.double().mean(0), rtol=0, atol=1e-6)


def test_survivors_redo_the_round_without_the_lost_clients(tmp_path: Path) -> None:
    if not has_ulfm():
        pytest.skip("this MPI has no ULFM")
    out, rounds = tmp_path / "run", 60
    job = SurvivingJob(4, run_args(out, rounds, "--algorithm.name", "scaffold", "--checkpoint.every", "5"))
    wait_for_round(job, 8)
    victim = ranks_of(job)[2]
    os.kill(victim, signal.SIGKILL)
    job.wait(timeout=120)
    assert still_alive(session_of(job.pid), seconds=5) == [], job.err
    done = json.loads((out / "done").read_text())
    assert done["rounds"] == rounds
    assert done["ranks"] == 3
    assert "lost rank 2" in job.err
    lost = records(out, "client_lost")
    assert len(lost) == 5, "20 clients on 4 ranks"
    at = int(lost[0]["round"])
    sizes = {int(r["round"]): r["value"] for r in records(out, "cohort_size")}
    assert sizes[at + 1] == 15
    assert sizes[at] == sizes[at + 2] == 20
    assert sorted(sizes) == list(range(1, rounds + 1)), "each round once"
    assert means_hold(out)


@pytest.mark.parametrize("where", ["agree", "begin"])
def test_a_rank_that_is_lost_while_the_others_recover(where: str, tmp_path: Path) -> None:
    if not has_ulfm():
        pytest.skip("this MPI has no ULFM")
    out, rounds = tmp_path / "run", 12
    words = run_args(out, rounds, "--algorithm.name", "scaffold", "--checkpoint.every", "5")
    job = SurvivingJob(4, [Path(__file__).parent / "programs" / "losing_twice.py", where, *words[2:]])
    job.wait(timeout=120)
    assert still_alive(session_of(job.pid), seconds=5) == [], job.err
    if "Send error after request freed" in job.err:
        assert list((out / "checkpoints").glob("round-*"))
        pytest.skip("Open MPI itself aborts where a send fails that it no longer waits for; the job can be resumed")
    assert (out / "done").exists(), job.out + job.err
    done = json.loads((out / "done").read_text())
    assert (done["rounds"], done["ranks"]) == (rounds, 2), job.err
    assert "lost ranks 1-2; 2 rank(s) redo round 9 without 10 client(s)" in job.err
    assert sorted(r["value"] for r in records(out, "rank_lost")) == [1, 2]
    assert len({r["client"] for r in records(out, "client_lost")}) == len(records(out, "client_lost")) == 10
    sizes = {int(r["round"]): r["value"] for r in records(out, "cohort_size")}
    assert (sizes[8], sizes[9], sizes[10]) == (20, 10, 20)
    assert means_hold(out)


def test_losing_the_server_ends_the_job_and_a_resume_finishes_it(tmp_path: Path) -> None:
    if not has_ulfm():
        pytest.skip("this MPI has no ULFM")
    out = tmp_path / "run"
    job = SurvivingJob(3, run_args(out, 100000, "--checkpoint.every", "5"))
    wait_for_round(job, 8)
    os.kill(ranks_of(job)[0], signal.SIGKILL)
    job.wait(timeout=60)
    assert "the server's rank was lost" in job.err or job.returncode != 0, job.err
    assert not (out / "done").exists()
    assert still_alive(session_of(job.pid), seconds=5) == []
    assert list((out / "checkpoints").glob("round-*"))
