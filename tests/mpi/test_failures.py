"""What goes wrong on one rank ends the job in seconds, with a message that says where; nothing finished is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launcher import REPOSITORY, MpiJob, mpirun, ranks_of, session_of, start, still_alive, without_network

PROGRAMS = Path(__file__).parent / "programs"
CONFIG = REPOSITORY / "configs" / "smoke" / "fedavg.yaml"
SECONDS = 10
LONG = ["--rounds", "100000", "--checkpoint.every", "5", "--evaluate.every", "1000"]


def checkpoints(run: Path) -> list[str]:
    return sorted(p.name for p in (run / "checkpoints").glob("round-*"))


def wait_for_checkpoint(job: MpiJob, run: Path, count: int = 1) -> None:
    end = time.monotonic() + 60
    while len(checkpoints(run)) < count:
        assert job.poll() is None, job.out + job.err
        assert time.monotonic() < end, job.out + job.err
        time.sleep(0.05)


def run_args(run: Path, *options: str) -> list[str | Path]:
    return ["-m", "fedhpc", "run", CONFIG, "--out", run, *LONG, *options]


@pytest.mark.parametrize(("victim", "hosts"), [(2, "true"), (0, "false")], ids=["a client's rank", "the server"])
def test_killed_rank_ends_the_job(victim: int, hosts: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    job = start(3, run_args(run, "--server.hosts_clients", hosts))
    wait_for_checkpoint(job, run)
    os.kill(ranks_of(job)[victim], signal.SIGKILL)
    assert job.wait(timeout=SECONDS) != 0
    assert still_alive(session_of(job.pid), seconds=5) == []
    assert checkpoints(run)
    assert not (run / "done").exists()


def test_ranks_die_with_their_launcher_and_release_the_directory(tmp_path: Path) -> None:
    run = tmp_path / "run"
    job = start(2, run_args(run))
    wait_for_checkpoint(job, run)
    ranks = ranks_of(job)
    os.kill(job.pid, signal.SIGKILL)
    assert still_alive(ranks, seconds=SECONDS) == []
    again = mpirun(1, run_args(run, "--resume", "--rounds", "7"))
    assert again.returncode == 2, "another number of rounds is another configuration"
    assert "rounds: 100000 there, 7 now" in again.stderr


def test_exception_in_one_client_names_rank_host_client_and_round(tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = mpirun(3, [PROGRAMS / "failing_client.py", "4", "3", "run", CONFIG, "--out", run, "--cohort.size", "20"])
    assert done.returncode == 1
    (line,) = [text for text in done.stderr.splitlines() if text.startswith("fedhpc: error")]
    assert f"on {os.uname().nodename} failed during train (client 4, round 3): RuntimeError: the injected" in line
    assert line.startswith("fedhpc: error: rank ")
    assert "Traceback" not in done.stderr
    (log,) = (p for p in (run / "log").glob("rank-*.log") if "Traceback" in p.read_text())
    assert time.time() - log.stat().st_mtime < SECONDS


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("cannot mount a small file system here (needs root)")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_full_disk_ends_the_job_and_keeps_the_last_checkpoint(small_disk: Path) -> None:
    run = small_disk / "run"
    done = mpirun(2, run_args(run, "--evaluate.every", "1"))
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "fedhpc: error" in done.stderr
    (newest, *_) = reversed(checkpoints(run))
    assert (run / "checkpoints" / newest / "meta.json").exists()


def mapped_by(pid: int) -> str:
    """Names of the files in a process's memory."""
    return Path(f"/proc/{pid}/maps").read_text()


def test_only_root_opens_shards_all_ranks_map_them_and_one_that_vanishes_is_named(tmp_path: Path) -> None:
    data, run = tmp_path / "digits", tmp_path / "run"
    prepared = subprocess.run(
        [sys.executable, "-m", "fedhpc", "prepare", "digits", "--out", data], capture_output=True, text=True
    )
    assert prepared.returncode == 0, prepared.stderr
    job = start(2, run_args(run, "--data.root", str(data)))
    wait_for_checkpoint(job, run)
    (shard,) = data.glob("shard-*.h5")
    root, other = ranks_of(job)
    assert str(shard) in mapped_by(root)
    assert str(shard) in mapped_by(other)
    assert "hdf5" in mapped_by(root).lower()
    assert "hdf5" not in mapped_by(other).lower(), "a rank that opens HDF5 files itself reads their metadata itself"
    os.truncate(shard, 4096)
    assert job.wait(timeout=SECONDS) == 1, job.err
    assert shard.name in job.err


def test_bad_configuration_ends_all_ranks_with_code_2(tmp_path: Path) -> None:
    done = mpirun(3, ["-m", "fedhpc", "run", CONFIG, "--out", tmp_path / "run", "--local.lrr", "1"])
    assert done.returncode == 2
    assert done.stderr.count("unknown key 'local.lrr'") == 1
    assert "did you mean" in done.stderr
    assert not (tmp_path / "run").exists()


def test_impossible_partition_ends_all_ranks_with_code_2(tmp_path: Path) -> None:
    done = mpirun(2, run_args(tmp_path / "run", "--partition.clients", "5000"))
    assert done.returncode == 2
    assert done.stderr.count("fedhpc: error") == 1
    assert "5000" in done.stderr


def test_a_dataset_that_is_not_there_ends_all_ranks_with_code_2(tmp_path: Path) -> None:
    done = mpirun(2, run_args(tmp_path / "run", "--data.root", str(tmp_path / "nowhere")))
    assert done.returncode == 2
    assert done.stderr.count("fedhpc: error") == 1
    assert "nowhere" in done.stderr


def test_all_clients_diverging_ends_all_ranks(tmp_path: Path) -> None:
    done = mpirun(2, run_args(tmp_path / "run", "--local.lr", "1e30"))
    assert done.returncode == 1
    assert done.stderr.count("fedhpc: error") == 1
    assert "diverged in round" in done.stderr


def test_second_job_on_a_directory_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    job = start(1, run_args(run))
    wait_for_checkpoint(job, run)
    second = mpirun(1, run_args(run, "--resume"))
    assert second.returncode == 1
    assert "is in use by process" in second.stderr
    assert job.poll() is None
    third = mpirun(1, run_args(run))
    assert third.returncode == 2
    assert "--resume" in third.stderr


def test_signal_to_one_rank_stops_all_at_a_round_border_with_code_75_and_no_network(tmp_path: Path) -> None:
    run = tmp_path / "run"
    job = start(2, run_args(run), before=without_network())
    wait_for_checkpoint(job, run)
    os.kill(ranks_of(job)[1], signal.SIGUSR1)
    assert job.wait(timeout=SECONDS) == 75, job.err
    assert f"go on with: fedhpc run {run}/config.yaml --out {run} --resume" in job.out
    newest = checkpoints(run)[-1]
    saved = json.loads((run / "checkpoints" / newest / "meta.json").read_text())["round"]
    assert f"stopped after round {saved}" in job.out
    shown = subprocess.run(
        [sys.executable, "-m", "fedhpc", "report", run, "--json"], capture_output=True, text=True, timeout=60
    )
    (found,) = json.loads(shown.stdout)["runs"]
    rows = {row["collective"]: row for row in found["collectives"]}
    assert {row["host"] for row in rows.values()} == {os.uname().nodename}
    assert rows["reduce"]["calls"] == 2 * saved, "one a round on each rank"
    assert rows["reduce"]["bytes"] > rows["reduce"]["calls"] * 1000
    assert rows["barrier"]["seconds"] > 0
    assert sum(row["share"] for row in rows.values()) < 1
    assert 0 < found["wait_share"] < 1
