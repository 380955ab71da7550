"""What starts the ranks: the launcher's words, and the lines that set up its environment."""

from __future__ import annotations

from collections.abc import Callable

from fedhpc.launch.request import JobRequest
from fedhpc.launch.words import word

_PMI = {"openmpi": "pmix", "mpich": "pmi2", "cray": "cray_shasta"}
_KEEPALIVE = "-o ServerAliveInterval=5 -o ServerAliveCountMax=6"
_SURVIVING = "--with-ft ulfm --mca async_mpi_finalize 1 --prtemca oob_tcp_keepalive_time 0"
"""The last: mpirun's own keepalive would notice a lost host after eight minutes, and end those who went on."""
_PASSED_ON = "OMP_NUM_THREADS PATH LD_LIBRARY_PATH PYTHONPATH"


def environment_lines(job: JobRequest) -> list[str]:
    """Modules, the site's set-up, and variables of the ranks and of the launcher."""
    site = job.site
    lines = ["module purge"] if site.modules and site.mpi != "cray" else []  # there what is loaded belongs together
    lines += [f"module load {word(m)}" for m in site.modules]
    lines += site.setup
    if lines:
        lines = ["set +u  # what a site loads may read variables that nobody set", *lines, "set -u"]
    cpus = f"${{SLURM_CPUS_PER_TASK:-{job.cpus_per_rank}}}" if job.scheduler == "slurm" else str(job.cpus_per_rank)
    lines += [f"export OMP_NUM_THREADS={cpus}"]
    lines += [f'export {name}="{value}"' for name, _, value in (s.partition("=") for s in site.environment)]
    if job.launcher == "srun":
        lines.append(f"export SRUN_CPUS_PER_TASK={cpus}  # srun does not take it from above")
    if job.scheduler == "slurm" and job.survive:
        lines.append("export SLURM_NO_KILL=set  # for the srun by which mpirun starts its daemons, as --no-kill above")
    if _is_open_mpi(job) and not job.survive:  # with ULFM it would let mpirun end the survivors
        lines += [
            f'export PRTE_MCA_plm_ssh_args="${{PRTE_MCA_plm_ssh_args:-{_KEEPALIVE}}}"  # a lost host ends the job',
            f'export OMPI_MCA_plm_rsh_args="${{OMPI_MCA_plm_rsh_args:-{_KEEPALIVE}}}"  # the same for Open MPI 4',
        ]
    return lines


def launcher_lines(job: JobRequest) -> list[str]:
    """The array `launcher`: how all ranks are started, up to the program."""
    lines: list[str] = []
    if _is_open_mpi(job):
        own = (setting.partition("=")[0] for setting in job.site.environment)
        lines += [
            "passed_on=()",
            f'for name in {" ".join([_PASSED_ON, *own])} "${{!FEDHPC_@}}"; do  # ssh passes nothing on by itself',
            '    [ -z "${!name:-}" ] || passed_on+=(-x "$name")',
            "done",
        ]
    words = [_WORDS[job.launcher](job), *map(word, job.site.launcher_flags)]
    return [*lines, f"launcher=({' '.join(words)})"]


def _is_open_mpi(job: JobRequest) -> bool:
    """Whether Open MPI starts the ranks itself."""
    return job.site.mpi == "openmpi" and job.launcher in ("mpirun", "mpiexec")


def _srun(job: JobRequest) -> str:
    return f"srun --mpi={_PMI[job.site.mpi]} --kill-on-bad-exit=1 --cpu-bind=cores"


def _mpirun(job: JobRequest) -> str:
    """`mpirun` or `mpiexec`: their options are those of the MPI library, not of the name."""
    name, per_node, cpus = job.launcher, job.ranks_per_node, job.cpus_per_rank
    if job.site.mpi == "cray":  # PALS
        return f"{name} -n {job.ranks} --ppn {per_node} --depth {cpus} --cpu-bind depth"
    if job.site.mpi == "mpich":  # Hydra
        return f"{name} -n {job.ranks} -ppn {per_node} -genvall"
    depth = f":PE={cpus}" if cpus > 1 else ""
    survive = f" {_SURVIVING}" if job.survive else ""
    # By its full path it finds its daemon on other hosts, too.
    path = f'"$(command -v {name} || echo {name})"'
    return f'{path} -n {job.ranks} --map-by ppr:{per_node}:node{depth} "${{passed_on[@]}}"{survive}'


def _jsrun(job: JobRequest) -> str:
    """One resource set per rank; one per node where the ranks of a node share its GPUs."""
    per_node, cpus = job.ranks_per_node, job.cpus_per_rank
    if job.gpus_per_node and not job.gpus_per_rank:
        sets = f"--nrs {job.nodes} --rs_per_host 1 --tasks_per_rs {per_node} --cpu_per_rs {per_node * cpus}"
        return f"jsrun {sets} --bind packed:{cpus} --gpu_per_rs {job.gpus_per_node}"
    gpus = f" --gpu_per_rs {job.gpus_per_rank}" if job.gpus_per_rank else ""
    return f"jsrun --nrs {job.ranks} --rs_per_host {per_node} --tasks_per_rs 1 --cpu_per_rs {cpus} --bind rs{gpus}"


def _flux(job: JobRequest) -> str:
    pmix = " -o pmi=pmix" if job.site.mpi == "openmpi" else ""  # else Open MPI 5 makes a world of each rank
    words = f"flux run -N {job.nodes} -n {job.ranks} -c {job.cpus_per_rank}{pmix} -o cpu-affinity=per-task"
    if job.gpus_per_rank:
        return f"{words} -g {job.gpus_per_rank}"
    return f"{words} -o gpu-affinity=off" if job.gpus_per_node else words


_WORDS: dict[str, Callable[[JobRequest], str]] = {
    "srun": _srun,
    "mpirun": _mpirun,
    "mpiexec": _mpirun,
    "jsrun": _jsrun,
    "flux": _flux,
}
