"""Launch checks: what should not run together is named in one sentence, what may is let through."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedhpc import __version__ as fedhpc_version
from fedhpc.comm import checks
from fedhpc.comm.checks import check_shared, launch_problems, launch_warnings, pinning_problems, spans
from fedhpc.comm.device import Pinning
from fedhpc.comm.facts import SETTINGS, RankFacts, source_sum
from fedhpc.comm.launchers import local_rank, singleton_problem, started_by_launcher
from fedhpc.comm.world import SoloWorld
from tests.conftest import REPOSITORY


def facts(ranks: int = 4, per_host: int = 2) -> list[RankFacts]:
    """Ranks in good order."""
    software = (("fedhpc", "1.0"), ("fedhpc's source", "abc"), ("torch", "2.5.0"))
    return [
        RankFacts(
            rank=r,
            host=f"node{r // per_host + 1}",
            command=("run", "a.yaml"),
            settings=tuple("1" if name == "OMP_NUM_THREADS" else None for name in SETTINGS),
            cores=frozenset(range(4)),
            num_cores=4,
            clock=1000.0 + r * 0.01,
            software=software,
            python="/env/bin/python",
            processor="Xeon" if r % per_host == 0 else "",
        )
        for r in range(ranks)
    ]


def changed(found: list[RankFacts], rank: int, **values: object) -> list[RankFacts]:
    return [dataclasses.replace(f, **values) if f.rank == rank else f for f in found]


def test_a_launch_in_good_order_gives_neither_problems_nor_warnings() -> None:
    assert launch_problems(facts()) == []
    assert launch_warnings(facts()) == []


@pytest.mark.parametrize(
    ("rank", "values", "words"),
    [
        (
            2,
            {"software": (("fedhpc", "1.1"), ("fedhpc's source", "abc"), ("torch", "2.5.0"))},
            ["versions of fedhpc ("],
        ),
        (2, {"software": (("fedhpc", "1.0"), ("fedhpc's source", "x"), ("torch", "2.5.0"))}, ["fedhpc's source"]),
        (
            2,
            {"software": (("fedhpc", "1.0"), ("fedhpc's source", "abc"), ("torch", "2.6"))},
            ["torch", "'2.6' on rank 2"],
        ),
        (
            3,  # not the first of its node
            {"software": (("fedhpc", "1.1"), ("fedhpc's source", "abc"), ("torch", "2.5.0"))},
            ["versions of fedhpc (", "'1.1' on rank 3 (node2)"],
        ),
        (3, {"command": ("run", "b.yaml")}, ["command lines", "'run b.yaml' on rank 3 (node2)", "one command"]),
        (
            1,
            {"settings": (None,) * len(SETTINGS)},
            ["OMP_NUM_THREADS", "nothing on rank 1", "mpirun -x OMP_NUM_THREADS"],
        ),
        (2, {"clock": 1042.0}, ["clock of node2 is 42 s ahead of that of node1", "NTP"]),
    ],
)
def test_one_rank_that_differs_is_named_with_the_remedy(rank: int, values: dict[str, object], words: list[str]) -> None:
    problems = launch_problems(changed(facts(), rank, **values))
    assert len(problems) == 1
    assert all(word in problems[0] for word in words), problems[0]
    assert "\n" not in problems[0]


def test_ranks_bound_to_one_core_while_others_are_free_are_refused() -> None:
    bound = [dataclasses.replace(f, cores=frozenset({0})) for f in facts()]
    problems = launch_problems(bound)
    assert len(problems) == 2
    assert "2 ranks are bound to 1 of the 4 cores of node1" in problems[0]
    assert "--bind-to none" in problems[0]


def test_more_ranks_than_cores_is_a_warning_and_different_processors_too() -> None:
    crowd = [dataclasses.replace(f, cores=frozenset({0, 1}), num_cores=2) for f in facts(8, per_host=8)]
    assert launch_problems(crowd) == []
    assert "8 ranks share the 2 core(s) of node1" in launch_warnings(crowd)[0]
    assert "different Pythons ('/env/bin/python'" in launch_warnings(changed(facts(), 3, python="/other"))[0]
    assert "different processors" in launch_warnings(changed(facts(), 2, processor="EPYC"))[0]


def pinning(rank: int, label: str, visible: tuple[str, ...]) -> Pinning:
    return Pinning(rank, "node1", rank, 4, 1, "cuda:0", label, visible)


def test_a_gpu_shared_while_another_is_idle_is_refused_and_sharing_all_is_not() -> None:
    both = ("H GPU-a", "H GPU-b")
    problems = pinning_problems([pinning(0, "H GPU-a", both), pinning(1, "H GPU-a", both)])
    assert len(problems) == 1
    assert "ranks 0-1 share the GPU H GPU-a of node1 while 1 other(s) are idle" in problems[0]
    assert pinning_problems([pinning(0, "H GPU-a", both), pinning(1, "H GPU-b", both)]) == []
    assert pinning_problems([pinning(r, both[r % 2], both) for r in range(4)]) == []
    assert pinning_problems([Pinning(r, "node1", r, 4, 1, "cpu", "CPU") for r in range(4)]) == []


def test_the_sum_of_a_source_tree_tells_contents_of_one_size_apart(tmp_path: Path) -> None:
    sums = set()
    for folder, name, content in [("a", "x.py", "lr = 0.1"), ("b", "x.py", "lr = 0.2"), ("c", "y.py", "lr = 0.1")]:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(content)
        sums.add(source_sum(tmp_path / folder))
    assert len(sums) == 3
    shutil.copytree(tmp_path / "a", tmp_path / "d")
    (tmp_path / "d" / ".#x.py").symlink_to("somebody@host.1234")  # an editor's lock
    assert source_sum(tmp_path / "d") in sums


def test_ranks_of_one_host_that_are_scheduled_late_have_no_clock_of_their_own() -> None:
    late = [dataclasses.replace(f, clock=1000.0 + 20.0 * f.rank) for f in facts(4, per_host=4)]
    assert launch_problems(late) == []


def test_spans() -> None:
    assert spans([0]) == "rank 0"
    assert spans([5, 0, 1, 2]) == "ranks 0-2, 5"


@pytest.mark.parametrize(
    ("environment", "started", "words"),
    [
        ({}, False, None),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"}, True, "srun started 4 tasks but MPI sees 1 rank"),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, True, "mpirun of Open MPI started 4"),
        ({"PMI_SIZE": "3", "PMI_RANK": "1"}, True, "mpiexec of MPICH started 3"),
        ({"FLUX_JOB_SIZE": "2", "FLUX_TASK_RANK": "0"}, True, "Flux started 2"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, False, "this Slurm job has 4 tasks"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "1"}, False, None),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "OMPI_COMM_WORLD_SIZE": "1"}, True, None),
    ],
)
def test_singletons_are_told_from_one_rank_that_was_asked_for(
    environment: dict[str, str], started: bool, words: str | None
) -> None:
    assert started_by_launcher(environment) is started
    problem = singleton_problem(environment)
    assert problem is None if words is None else problem is not None and words in problem


def test_local_rank_before_mpi() -> None:
    assert local_rank({}) == 0
    assert local_rank({"SLURM_LOCALID": "3"}) == 3


def fedhpc(environment: dict[str, str], *args: str | Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-m", "fedhpc", *map(str, args)]
    return subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=60)


def test_a_slurm_job_of_four_tasks_that_runs_as_singletons_is_refused_in_time(tmp_path: Path) -> None:
    began = time.monotonic()
    done = fedhpc(
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, "run", "configs/smoke/quickstart.yaml", "--out", tmp_path / "r"
    )
    assert done.returncode == 2, done.stderr
    assert "srun --mpi=pmix" in done.stderr
    assert time.monotonic() - began < 10
    assert not (tmp_path / "r").exists()


SHOW_PROBLEMS = """
from fedhpc.comm.checks import launch_problems
from fedhpc.comm.facts import facts_of
from fedhpc.comm.world import open_world
world = open_world()
print(*launch_problems(world.gather(facts_of(world)) or []), sep="\\n")
"""


@pytest.mark.mpi
def test_ranks_of_different_commands_versions_or_settings_are_refused(tmp_path: Path) -> None:
    mpirun = shutil.which("mpirun", path=str(Path(sys.executable).parent)) or shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("no mpirun")
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "PRTE_"))},
        "PYTHONPATH": str(REPOSITORY),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMP_NUM_THREADS": "1",
    }
    other = tmp_path / "other"
    shutil.copytree(REPOSITORY / "fedhpc", other / "fedhpc")
    init = other / "fedhpc" / "__init__.py"
    init.write_text(init.read_text().replace(f'__version__ = "{fedhpc_version}"', '__version__ = "0.0.9"'))
    config, out, host = REPOSITORY / "configs" / "smoke" / "quickstart.yaml", tmp_path / "r", os.uname().nodename
    run = [sys.executable, "-m", "fedhpc", "run", str(config), "--out", str(out), "--rounds", "1"]
    show = [sys.executable, "-c", SHOW_PROBLEMS]
    for first, second, code, words in [
        (
            run,
            ["env", "OMP_NUM_THREADS=2", *run],
            2,
            ["error: the ranks have different values of OMP_NUM_THREADS ('1'"],
        ),
        (
            [*show, "1"],
            ["env", "-C", str(other), *show, "2"],
            0,
            [
                "different command lines",
                f"different versions of fedhpc ('{fedhpc_version}' on rank 0 ({host}), '0.0.9' on rank 1 ({host}))",
                "different versions of fedhpc's source",
            ],
        ),
    ]:
        command = [mpirun, "-n", "1", *first, ":", "-n", "1", *second]
        done = subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stdout + done.stderr
        assert all(text in done.stdout + done.stderr for text in words), done.stdout + done.stderr
        assert done.stderr.count("fedhpc: error") == (code == 2)
        assert not out.exists()


class SecondRank(SoloWorld):
    """Rank 1 of a node, as seen from itself: it hears root's word, and what it would tell root is kept."""

    rank = local_rank = 1
    size = local_size = 2
    is_root = False
    told: object = None

    def share(self, small: object) -> object:
        return "word"

    def gather(self, small: object) -> None:
        self.told = small


def test_a_second_rank_of_a_node_looks_for_roots_folder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may have a folder of that name of its own, as containers with a private /tmp have."""
    monkeypatch.setattr(checks, "_SEEN_WITHIN", 0.0)
    world = SecondRank()
    check_shared(world, tmp_path)  # type: ignore[arg-type]
    assert world.told == world.host
    (tmp_path / ".seen-word").touch()
    check_shared(world, tmp_path)  # type: ignore[arg-type]
    assert world.told is None
