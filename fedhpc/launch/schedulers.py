"""The four schedulers: their directives, and how a job is handed in again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedhpc.launch.request import JobRequest, clock, clock_minutes
from fedhpc.launch.words import quoted


@dataclass(frozen=True)
class Scheduler:
    """What is particular about a scheduler.

    Attributes:
        prefix: what its directives begin with.
        directives: the lines after the prefix.
        again: line that hands the job in again and ends the script.
        end: line that exports the end of the job's time, where the scheduler does not tell the ranks.
        job: shell expression for the job's id, for messages.
        submit: command that takes a script.
        has_arrays: whether it makes the jobs of an array from one script; else the script is handed in for each.
        has_warning: whether it sends a signal before the time limit.
        left: shell function `left`, which says how many seconds of the job's time are left.
    """

    prefix: str
    directives: Callable[[JobRequest], list[str]]
    again: Callable[[JobRequest], str]
    end: Callable[[JobRequest], list[str]]
    job: str
    submit: tuple[str, ...]
    has_arrays: bool = True
    has_warning: bool = True
    left: str = 'left() { echo "$((${FEDHPC_JOB_END:-9999999999} - $(date +%s)))"; }  # seconds'


_SLURM_LEFT = """\
me=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
me=${me:-$SLURM_JOB_ID}  # to Slurm the number of one member of an array means all of them
ends() {  # as Slurm has it now
    local at
    at=$(squeue -h -j "$me" -o %e) && [ -n "$at" ] || return
    date -d "$at" +%s || echo 9999999999
}
told=${SLURM_JOB_END_TIME:-$(ends 2>/dev/null || echo 9999999999)}  # older Slurms do not tell their jobs
left() {  # seconds; the limit may have been moved
    local end=$told
    [ "$((end - $(date +%s)))" -gt 15 ] || end=$(ends || echo "$end")
    echo "$((end - $(date +%s)))"
}"""


def _slurm(job: JobRequest) -> list[str]:
    site = job.site
    lines = [
        f"--job-name={job.name}",
        f"--nodes={job.nodes}",
        f"--ntasks-per-node={job.ranks_per_node}",
        f"--cpus-per-task={job.cpus_per_rank}",
    ]
    lines += [f"--gpus-per-node={job.gpus_per_node}"] if job.gpus_per_node else []
    lines += [f"--time={clock(job.seconds)}"] if job.seconds else []
    lines += [f"--partition={quoted(site.partition)}"] if site.partition else []
    lines += [f"--account={quoted(site.account)}"] if site.account else []
    lines += [f"--array=0-{job.array - 1}"] if job.array else []
    lines += [f"--output={quoted(job.log or f'{job.out}/log/job-%j.out')}", "--open-mode=append"]
    lines += ["--requeue" if site.requeue else "--no-requeue"]
    lines += ["--no-kill"] if job.survive else []
    lines += [f"--signal=B:USR1@{site.warn_seconds}"] if site.warn_seconds else []
    return lines


def _slurm_again(job: JobRequest) -> str:
    index = ' --array="$SLURM_ARRAY_TASK_ID"' if job.array else ""
    resubmit = f'OUT="$out" sbatch --dependency="afterany:$me"{index} "$script" "$@"'
    requeue = 'scontrol requeue "$me" || ' if job.site.requeue else ""
    return f"{requeue}{resubmit} && exit 0"


def _pbs(job: JobRequest) -> list[str]:
    site = job.site
    cpus = job.ranks_per_node * job.cpus_per_rank
    gpus = f":ngpus={job.gpus_per_node}" if job.gpus_per_node else ""
    lines = [
        f"-N {job.name[:15]}",
        f"-l select={job.nodes}:ncpus={cpus}:mpiprocs={job.ranks_per_node}:ompthreads={job.cpus_per_rank}{gpus}",
        "-l place=scatter",
    ]
    lines += [f"-l walltime={clock(job.seconds)}"] if job.seconds else []
    lines += [f"-q {quoted(site.partition)}"] if site.partition else []
    lines += [f"-A {quoted(site.account)}"] if site.account else []
    lines += [f"-J 0-{job.array - 1}" if job.array > 1 else "-J 0-1:2"] if job.array else []  # a range has two ends
    lines += ["-W tolerate_node_failures=all"] if job.survive else []
    return [*lines, "-j oe", *([] if job.log else [f"-o {quoted(job.out + '/log/')}"]), "-r y"]


def _pbs_again(job: JobRequest) -> str:
    # PBS lets no job depend on one member of an array; the work of this member has ended by now anyway.
    which = '-J "$PBS_ARRAY_INDEX-$((PBS_ARRAY_INDEX + 1)):2"' if job.array else '-W depend=afterany:"$PBS_JOBID"'
    given = "OUT CONFIG" if '"$CONFIG"' in job.command else "OUT"
    names = f'$(names=({given} "${{!FEDHPC_@}}"); IFS=,; echo "${{names[*]}}")'  # with the values they have here
    return f'OUT="$out" qsub -v "{names}" {which} "$script" && exit 0'


def _lsf(job: JobRequest) -> list[str]:
    site = job.site
    lines = [f"-J {job.name}" + (f"[1-{job.array}]" if job.array else "")]
    if job.launcher == "jsrun":  # whole nodes, which jsrun divides
        lines += [f"-nnodes {job.nodes}"]
    else:
        lines += [f"-n {job.ranks}", f'-R "span[ptile={job.ranks_per_node}] affinity[core({job.cpus_per_rank})]"']
        lines += [f'-gpu "num={job.gpus_per_node}/host"'] if job.gpus_per_node else []
    lines += [f"-W {clock_minutes(job.seconds)}"] if job.seconds else []
    lines += [f"-q {quoted(site.partition)}"] if site.partition else []
    lines += [f"-P {quoted(site.account)}"] if site.account else []
    lines += [f"-o {quoted(job.out + '/log/job-%J' + ('_%I' if job.array else '') + '.out')}", "-r", "-Q 75"]
    lines += [f"-wa USR1 -wt {max(1, site.warn_seconds // 60)}"] if site.warn_seconds and job.seconds else []
    return lines


def _lsf_again(job: JobRequest) -> str:
    return "exit 75  # -Q 75 above puts the job back into the queue"


def _flux(job: JobRequest) -> list[str]:
    site = job.site
    lines = [
        f"--job-name={job.name}",
        f"--nodes={job.nodes}",
        f"--nslots={job.nodes}",  # a slot is a node: its GPUs need not divide by its ranks
        f"--cores-per-slot={job.ranks_per_node * job.cpus_per_rank}",
        "--exclusive",
    ]
    lines += [f"--gpus-per-slot={job.gpus_per_node}"] if job.gpus_per_node else []
    lines += [f"--time-limit={job.seconds}s"] if job.seconds else []
    lines += [f"--queue={quoted(site.partition)}"] if site.partition else []
    lines += [f"--bank={quoted(site.account)}"] if site.account else []
    lines += [f"--signal=SIGUSR1@{site.warn_seconds}s"] if site.warn_seconds and job.seconds else []
    return [*lines, f"--output={quoted(job.out + '/log/job-{{id}}.out')}"]


def _flux_again(job: JobRequest) -> str:
    # Without --parent it would become a job inside this one and end with it.
    return 'OUT="$out" flux --parent batch --dependency="afterany:$(flux getattr jobid)" "$script" "$@" && exit 0'


def _told_by_scheduler(job: JobRequest) -> list[str]:
    return []


def _counted_from_start(job: JobRequest) -> list[str]:
    if not job.seconds:
        return []
    return [f"export FEDHPC_JOB_END=$(($(date +%s) + {job.seconds}))  # the time limit above: change both"]


KNOWN = {
    "slurm": Scheduler(
        "#SBATCH ",
        _slurm,
        _slurm_again,
        _told_by_scheduler,
        "$SLURM_JOB_ID, start $((${SLURM_RESTART_COUNT:-0} + 1))",
        ("sbatch",),
        left=_SLURM_LEFT,
    ),
    "pbs": Scheduler("#PBS ", _pbs, _pbs_again, _counted_from_start, "$PBS_JOBID", ("qsub",), has_warning=False),
    "lsf": Scheduler("#BSUB ", _lsf, _lsf_again, _counted_from_start, "$LSB_JOBID", ("bsub", "<")),
    "flux": Scheduler(
        "#FLUX: ",
        _flux,
        _flux_again,
        _counted_from_start,
        "$(flux getattr jobid)",
        ("flux", "batch"),
        has_arrays=False,
    ),
}
