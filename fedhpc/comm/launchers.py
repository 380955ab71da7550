"""What the launcher that started this process says about the job, in the variables it sets for each rank."""

from __future__ import annotations

import os
from collections.abc import Mapping

_STARTED_BY = (
    ("OMPI_COMM_WORLD_SIZE", "mpirun of Open MPI"),
    ("PMI_SIZE", "mpiexec of MPICH"),
    ("JSM_NAMESPACE_SIZE", "jsrun"),
    ("FLUX_JOB_SIZE", "Flux"),
    ("SLURM_STEP_NUM_TASKS", "srun"),
)
"""Variables that hold the number of processes of this launch, innermost launcher first, and who sets them."""

_RANKS = ("PMI_RANK", "PMIX_RANK", "PALS_RANKID", "MPI_LOCALNRANKS", "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK")
_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "SLURM_LOCALID")
_REMEDY = "start it with `srun --mpi=pmix` (Open MPI), `srun --mpi=pmi2` (MPICH) or the mpirun of this MPI library"
_FLUX_REMEDY = "start it with `flux run -o pmi=pmix` (Open MPI 5, by the plugin flux-pmix) or this MPI library's mpirun"


def started_by_launcher(environment: Mapping[str, str] | None = None) -> bool:
    """Whether mpirun, mpiexec, srun, jsrun or flux run started this process."""
    env = os.environ if environment is None else environment
    if any(name in env for name in (*_RANKS, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")):
        return True
    return any(_number(env.get(name)) > 1 for name, _ in _STARTED_BY)


def local_rank(environment: Mapping[str, str] | None = None) -> int:
    """Place among the processes of this node as the launcher says it, before MPI is up; 0 where nothing says so."""
    env = os.environ if environment is None else environment
    return next((_number(env[name]) for name in _LOCAL_RANKS if name in env), 0)


def singleton_problem(environment: Mapping[str, str] | None = None) -> str | None:
    """What is wrong when MPI sees one rank, in one sentence with the remedy; None if one rank was asked for.

    Launcher and MPI library that do not match give as many separate runs as there should be ranks.
    """
    env = os.environ if environment is None else environment
    for name, launcher in _STARTED_BY:
        if name in env:
            wanted = _number(env[name])
            if wanted <= 1:
                return None
            return (
                f"{launcher} started {wanted} tasks but MPI sees 1 rank, "
                f"so {wanted} separate copies would run: {_FLUX_REMEDY if launcher == 'Flux' else _REMEDY}"
            )
    wanted = _number(env.get("SLURM_NTASKS")) if "SLURM_PROCID" in env else 1
    if wanted <= 1:
        return None
    return (
        f"this Slurm job has {wanted} tasks but fedhpc was started as one process: {_REMEDY} "
        "(`srun -n 1` if one rank is meant)"
    )


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdigit() else 1 if text is None else 0
