"""A process finds out from its launcher's variables whether it is one of many."""

from __future__ import annotations

import pytest

from fedhpc.comm.launchers import local_rank, singleton_problem, started_by_launcher


@pytest.mark.parametrize(
    ("environment", "launched"),
    [
        ({}, False),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, True),
        ({"PMI_RANK": "0"}, True),
        ({"PMIX_RANK": "0"}, True),
        ({"PALS_RANKID": "3"}, True),
        ({"FLUX_TASK_RANK": "1"}, True),
        ({"JSM_NAMESPACE_RANK": "1"}, True),
        ({"SLURM_STEP_NUM_TASKS": "4"}, True),
        ({"SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "8"}, False),  # the batch script itself
        ({"SLURM_NTASKS": "8"}, False),  # the shell that salloc opens
    ],
)
def test_a_launcher_is_known_by_its_variables(environment: dict[str, str], launched: bool) -> None:
    assert started_by_launcher(environment) is launched


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, 0),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "3"}, 3),
        ({"SLURM_LOCALID": "2"}, 2),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "1", "SLURM_LOCALID": "0"}, 1),  # mpirun inside a Slurm step
    ],
)
def test_local_rank_is_that_of_the_innermost_launcher(environment: dict[str, str], expected: int) -> None:
    assert local_rank(environment) == expected


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OMPI_COMM_WORLD_SIZE": "1"},
        {"SLURM_NTASKS": "8"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "1"},
        {"OMPI_COMM_WORLD_SIZE": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"},
    ],
)
def test_one_rank_that_was_asked_for_is_no_problem(environment: dict[str, str]) -> None:
    assert singleton_problem(environment) is None


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4"}, "srun started 4 tasks but MPI sees 1 rank"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "mpirun of Open MPI started 2"),
        ({"PMI_SIZE": "3"}, "MPICH started 3"),
        ({"FLUX_JOB_SIZE": "5"}, "Flux started 5"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, "8 tasks but fedhpc was started as one process"),
    ],
)
def test_separate_copies_instead_of_one_job_are_refused(environment: dict[str, str], named: str) -> None:
    problem = singleton_problem(environment)
    assert problem is not None
    assert named in problem
    assert ("flux run -o pmi=pmix" if "Flux" in named else "srun --mpi=pmix") in problem
