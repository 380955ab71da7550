"""`fedhpc doctor` under mpirun and alone: the table, the verdicts, JSON and the exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from launcher import REPOSITORY, mpirun

from fedhpc.comm.gpu_probe import probe

DOCTOR = ["-m", "fedhpc", "doctor", "--megabytes", "1"]


def test_two_ranks_are_shown_measured_and_judged(tmp_path: Path) -> None:
    done = mpirun(2, [*DOCTOR, "--out", tmp_path / "later" / "runs"])
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["rank", "0", "1"]
    assert any(line.startswith("MPI library: Open MPI") or line.startswith("MPI library: MPICH") for line in lines)
    assert any("sum of 1.0 MB: median" in line and "MB/s" in line for line in lines)
    assert any(line.startswith("ok") and "the right numbers" in line for line in lines)
    assert not any(line.startswith("failed") for line in lines)
    assert sum(line.split()[1] == "cores" for line in lines if line.startswith(("ok", "warning"))) == 1
    assert f"later/runs: not there yet, a run would make it; every rank sees {tmp_path} and can write" in done.stdout
    assert any(line.startswith("ok       HDF5") and "locks" in line for line in lines)
    assert list(tmp_path.iterdir()) == []


def alone(*args: str | Path) -> subprocess.CompletedProcess[str]:
    """Bound to one core, with nobody saying how many threads to use."""
    command = [sys.executable, *DOCTOR, *map(str, args)]
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # children inherit it
    try:
        return subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=90)
    finally:
        os.sched_setaffinity(0, cores)


def test_alone_and_as_json(tmp_path: Path) -> None:
    done = alone("--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    tree = json.loads(done.stdout)
    assert tree["mpi"] == "none (one process)"
    assert [(r["cores"], r["threads"]) for r in tree["ranks"]] == [(1, 1)]
    assert "no loader processes are started" in next(v["text"] for v in tree["verdicts"] if v["name"] == "processes")
    assert {v["state"] for v in tree["verdicts"]} <= {"ok", "warning", "skipped"}


def test_a_shard_that_cannot_be_read_fails(tmp_path: Path) -> None:
    done = alone("--out", tmp_path, "--shard", tmp_path / "nowhere")
    assert done.returncode == 1
    assert "failed   reading" in done.stdout


def test_a_directory_that_cannot_be_written_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out, why in ((Path("/proc/nowhere"), "cannot be written"), (tmp_path / "file" / "runs", "is a file")):
        done = alone("--out", out)
        assert done.returncode == 1
        verdict = next(line for line in done.stdout.splitlines() if "run directory" in line)
        assert verdict.startswith("failed")
        assert why in verdict
        assert "says rank 0 on" in verdict


def test_the_gpu_probe_is_a_process_of_its_own() -> None:
    works, text = probe()
    assert works or text, "it answers, whatever the machine has, and this process lives"


@pytest.mark.parametrize(
    ("body", "told"),
    [("kill -SEGV $$", "the probe died of SIGSEGV"), ("echo no CUDA here >&2; exit 1", "no CUDA here")],
)
def test_an_mpi_library_that_crashes_on_gpu_buffers_takes_only_the_probe_with_it(
    body: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "python"
    child.write_text(f"#!/bin/sh\n{body}\n")
    child.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(child))
    assert probe() == (False, told)
