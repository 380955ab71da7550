"""A run that was stopped or killed ends, on any number of ranks, in the very bits of an undisturbed one."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from launcher import REPOSITORY, mpirun, ranks_of, start, still_alive
from safetensors.numpy import load_file

PROGRAMS = Path(__file__).parent / "programs"
CONFIG = REPOSITORY / "configs" / "smoke" / "fedavg.yaml"
ROUNDS = 80
FEW = ("--rounds", "3", "--local.epochs", "1")


def args(run: Path, algorithm: str, *more: str) -> list[str | Path]:
    options = f"--rounds {ROUNDS} --algorithm.name {algorithm} --checkpoint.every 10 --evaluate.every 10"
    return ["-m", "fedhpc", "run", CONFIG, "--out", run, *options.split(), *more]


def done(run: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((run / "done").read_text())
    return found


def rounds_recorded(run: Path) -> list[int]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["round"] for line in lines if line["what"] == "train_loss"]


def wait_for(run: Path, name: str) -> None:
    end = time.monotonic() + 60
    while not (run / "checkpoints" / name).exists():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_killed_and_resumed_on_other_ranks_ends_in_the_same_bits(algorithm: str, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert mpirun(1, args(whole, algorithm)).returncode == 0

    job = start(3, args(broken, algorithm))
    wait_for(broken, "round-00000020")
    ranks = ranks_of(job)
    os.kill(job.pid, signal.SIGKILL)
    assert still_alive(ranks, seconds=10) == []
    assert not (broken / "done").exists(), "the kill came too late to test anything"

    # The newest checkpoint is cut short, as by a disk that lied: the one before it takes over.
    newest = sorted((broken / "checkpoints").glob("round-*"))[-1]
    file = newest / "server.safetensors"
    os.truncate(file, file.stat().st_size // 2)
    resumed = mpirun(2, args(broken, algorithm, "--resume"))
    assert resumed.returncode == 0, resumed.stderr
    assert "falling back" in resumed.stderr
    assert "resuming after round" in resumed.stdout

    assert done(broken)["weights_sha256"] == done(whole)["weights_sha256"]
    assert done(broken)["final_client_accuracy"] == done(whole)["final_client_accuracy"]
    assert rounds_recorded(broken) == list(range(1, ROUNDS + 1)), "every round is recorded once"
    assert list(broken.glob("metrics.superseded-*.jsonl")), "what was recorded after the checkpoint is kept aside"

    again = mpirun(1, args(broken, algorithm, "--resume"))
    assert again.returncode == 0
    assert "finished" in again.stdout
    other = mpirun(1, args(broken, algorithm, "--resume", "--local.lr", "0.2"))
    assert other.returncode == 2
    assert "local.lr" in other.stderr


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two ranks that are held up by what plug-ins and disks may do ran without being told a directory."""
    folder = tmp_path_factory.mktemp("plain")
    options = [word for word in args(folder, "fedavg", *FEW)[3:] if word not in ("--out", folder)]
    ended = mpirun(2, [PROGRAMS / "burdened.py", "run", *options], cwd=folder)
    assert ended.returncode == 0, ended.stderr
    assert "MPI_ABORT" not in ended.stderr
    return folder


def test_resume_with_nothing_saved_starts_at_round_0(plain: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    (undisturbed,) = (plain / "runs").iterdir()
    assert mpirun(2, args(fresh, "fedavg", *FEW, "--resume")).returncode == 0
    assert done(fresh)["weights_sha256"] == done(undisturbed)["weights_sha256"]


def test_all_ranks_share_one_default_directory_and_wait_for_a_root_that_saves_slowly(plain: Path) -> None:
    (run,) = (plain / "runs").iterdir()
    assert done(run)["rounds"] == 3
    assert load_file(run / "model.safetensors")
    assert not list((run / "log").glob("rank-*"))


def test_processes_that_ranks_start_end_and_leave_mpi_alone(plain: Path) -> None:
    """A loader that starts by importing MPI would join the job, or hang in it."""
    started = {file.name: file.read_text() for file in plain.glob("child-*")}
    assert started == {"child-0": "no MPI", "child-1": "no MPI"}
