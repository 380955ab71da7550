"""The MPI test launcher itself: ranks start, output comes back, hanging and orphaned jobs are ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launcher import mpirun, ranks_of, session_of, start, still_alive

HELLO = """
import os, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
print(f"rank {world.rank} of {world.size} threads {os.environ['OMP_NUM_THREADS']}", flush=True)
print(f"note {world.rank}", file=sys.stderr)
"""
HANG = "from mpi4py import MPI; import time; print('up', flush=True); time.sleep(600)"


@pytest.mark.parametrize("n", [1, 4])
def test_ranks_run_and_both_streams_come_back(n: int) -> None:
    done = mpirun(n, ["-c", HELLO])
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n"))[1:] == [f"rank {r} of {n} threads 1" for r in range(n)]
    assert all(f"note {r}" in done.stderr for r in range(n))


def test_the_exit_code_of_the_ranks_is_handed_on() -> None:
    assert mpirun(1, ["-c", "import sys; sys.exit(75)"]).returncode == 75


def test_a_job_that_hangs_is_killed_with_all_its_ranks_and_fails_the_test(tmp_path: Path) -> None:
    script = f"import os, pathlib; pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch()\n{HANG}"
    with pytest.raises(pytest.fail.Exception, match=r"no end after 3 s(.|\n)*up"):
        mpirun(2, ["-c", script], timeout=3)
    pids = [int(p.name) for p in tmp_path.iterdir()]
    assert len(pids) == 2
    assert still_alive(pids) == []


def test_ranks_are_found_in_order_and_after_mpirun_is_gone() -> None:
    job = start(3, ["-c", HANG])
    ranks = ranks_of(job)
    for rank, pid in enumerate(ranks):
        assert f"OMPI_COMM_WORLD_RANK={rank}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    os.kill(job.pid, signal.SIGKILL)
    job.wait(timeout=5)
    assert set(session_of(job.pid)) <= set(ranks)
    assert job.kill_all() == []
    assert still_alive(ranks) == []


def test_still_alive_counts_a_zombie_as_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    assert still_alive([child.pid], seconds=10) == []
    child.wait()
    sleeper = subprocess.Popen(["sleep", "60"])
    begin = time.monotonic()
    assert still_alive([sleeper.pid], seconds=0.2) == [sleeper.pid]
    assert time.monotonic() - begin < 5
    sleeper.kill()
    sleeper.wait()
