"""Requests for jobs whose scripts are kept as golden files, and the scripts in launch/ that need no `submit`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedhpc.config import load
from fedhpc.launch import SCHEDULERS, JobRequest, Site, render
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
    "staged": {
        "stage": (("--data.root", "/data/pacs"),),
        "site": replace(PLAIN, scratch="$TMPDIR", account="proj", partition="gpu"),
    },
}
CASES = {f"{s}-{name}": replace(BASE, scheduler=s, **changes) for s in SCHEDULERS for name, changes in MODES.items()}
CASES |= {f"{s}-survive": replace(BASE, scheduler=s, survive=True) for s in ("slurm", "pbs")}
CASES |= {
    f"site-{file.stem}": replace(BASE, scheduler=file.stem.split("-")[0], site=load(Site, str(file))) for file in SITES
}
CASES["slurm-sweep-staged"] = replace(
    CASES["slurm-sweep"], stage=(("--sweep.datasets.pacs", "/data/pacs"), ("--sweep.datasets.vlcs", "/data/my vlcs"))
)
CASES["flux-shared-gpu"] = replace(BASE, scheduler="flux", gpus_per_node=1)
CASES["lsf-jsrun-shared-gpu"] = replace(BASE, scheduler="lsf", gpus_per_node=6, site=Site(launcher="jsrun"))
for family in ("openmpi", "mpich", "cray"):
    CASES[f"pbs-mpiexec-{family}"] = replace(BASE, scheduler="pbs", site=Site(mpi=family, launcher="mpiexec"))


def _plain(scheduler: str, mode: str, array: int = 0) -> JobRequest:
    """A script of launch/ that takes its configuration when it is handed in."""
    slurm = scheduler == "slurm"
    file = f"launch/{scheduler}/{mode}.{'sbatch' if slurm else 'pbs'}"
    config, words = ("$1", (mode, '"$1"', '"${@:2}"')) if slurm else ("$CONFIG", (mode, '"$CONFIG"'))
    if slurm:  # a study is one job here, and an array with `sbatch --array`
        job = {"run": "$SLURM_JOB_ID", "study": "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}", "sweep": "$SLURM_ARRAY_JOB_ID"}
    else:
        job = {"run": "$PBS_JOBID", "study": "$PBS_JOBID", "sweep": "${PBS_ARRAY_ID%%[!0-9]*}"}
    return replace(
        BASE,
        scheduler=scheduler,
        mode=mode,
        command=words,
        out=f'${{OUT:-runs/$(basename "${{{config.strip("$")}%.*}}")-{job[mode]}}}',
        script=file,
        directory="$SLURM_SUBMIT_DIR" if slurm else "$PBS_O_WORKDIR",
        nodes=2,
        ranks_per_node=4,
        cpus_per_rank=4,
        gpus_per_node=0,
        array=array,
        log={"sweep": "%x-%A_%a.out"}.get(mode, "%x-%j.out"),
        title="fedhpc",
    )


PLAIN_FILES = {
    f"{scheduler}/{mode}.{suffix}": _plain(scheduler, mode, 4 if mode == "sweep" else 0)
    for scheduler, suffix in (("slurm", "sbatch"), ("pbs", "pbs"))
    for mode in ("run", "study", "sweep")
}


def plain_text(name: str) -> str:
    """The files that work without `fedhpc submit` are rendered too, with a usage line instead of who wrote them."""
    job = PLAIN_FILES[name]
    if job.scheduler == "slurm":
        usage = f"sbatch {job.script} CONFIG [--key value]; OUT=DIR in front names the directory"
    else:
        usage = f"qsub -v CONFIG=FILE {job.script}; OUT=DIR as well names the directory"
    return render(job).replace(
        "Written by `fedhpc submit`: read it, edit it, keep it.", f"Change the numbers above.\n# {usage}"
    )


def scripts() -> dict[str, str]:
    return {name: render(job) for name, job in CASES.items()} | {name: plain_text(name) for name in PLAIN_FILES}


def path_of(name: str) -> Path:
    return REPOSITORY / "launch" / name if name in PLAIN_FILES else GOLDEN / f"{name}.sh"
