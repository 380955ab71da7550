"""The text of a batch script."""

from __future__ import annotations

import shlex

from fedhpc.launch.request import JobRequest
from fedhpc.launch.schedulers import KNOWN

_PMI = {"openmpi": "pmix", "mpich": "pmi2", "cray": "cray_shasta"}
_KEEPALIVE = "-o ServerAliveInterval=2 -o ServerAliveCountMax=2"

_PROGRESS = {
    "run": '"$out"/checkpoints/round-*',
    "study": '"$out"/*/checkpoints/round-* "$out"/*/done',
    "sweep": "",
}

_WAIT = """\
job=
cancelled=
code=0
trap 'kill -USR1 "$job" 2>/dev/null' USR1  # time is running out: the ranks save and stop at the next clean point
trap 'cancelled=yes; kill -USR1 "$job" 2>/dev/null' TERM
"${launcher[@]}" "${command[@]}" &
job=$!
wait "$job" || code=$?
while kill -0 "$job" 2>/dev/null; do  # a signal ends `wait` early, the job goes on
    code=0
    wait "$job" || code=$?
done
"""


def render(job: JobRequest) -> str:
    """The whole script."""
    scheduler = KNOWN[job.scheduler]
    again = scheduler.again(job)
    directives = [*scheduler.directives(job), *job.site.directives]
    parts = [
        "#!/bin/bash",
        *(scheduler.prefix + line for line in directives),
        "",
        f"# {_what(job)} Written by `fedhpc submit`: read it, edit it, keep it.",
        "# shellcheck disable=SC1091",
        "set -uo pipefail",
        "",
        f"out={_word(job.out)}",
        *([f"script={_word(job.script)}"] if "$script" in again else []),
        f"cd {_word(job.directory)} || exit 1",
        'mkdir -p "$out/log"',
        f'echo "$(date +%FT%T) job {scheduler.job} on $(hostname)"',
        "",
        *_site(job),
        *scheduler.end(job),
        "",
        f"launcher=({_launcher(job)})",
        *_staging(job),
        f"command=({_command(job)})",
        "",
        *_progress(job),
        _WAIT,
        *_ending(job, again),
    ]
    return "\n".join(parts) + "\n"


def _what(job: JobRequest) -> str:
    nodes = f"{job.nodes} node{'s' if job.nodes > 1 else ''}"
    many = f", {job.array} jobs that share one directory" if job.array else ""
    return f"A {job.mode} on {job.ranks} MPI rank{'s' if job.ranks > 1 else ''} on {nodes}{many}."


def _word(text: str) -> str:
    """One shell word; a text with a `$` in it is left to the shell, in double quotes."""
    return f'"{text}"' if "$" in text else shlex.quote(text)


def _site(job: JobRequest) -> list[str]:
    site = job.site
    lines = ["module purge", *(f"module load {shlex.quote(m)}" for m in site.modules)] if site.modules else []
    lines += site.setup
    cpus = f"${{SLURM_CPUS_PER_TASK:-{job.cpus_per_rank}}}" if job.scheduler == "slurm" else str(job.cpus_per_rank)
    lines += [f"export OMP_NUM_THREADS={cpus}"]
    lines += [f'export {name}="{value}"' for name, _, value in (s.partition("=") for s in site.environment)]
    if job.launcher == "srun":
        lines.append(f"export SRUN_CPUS_PER_TASK={cpus}  # srun does not take it from above")
    if job.launcher == "mpirun" and site.mpi == "openmpi" and not job.survive:
        lines.append(f'export PRTE_MCA_plm_ssh_args="{_KEEPALIVE}"  # a lost host ends the job in seconds')
    return lines


def _launcher(job: JobRequest) -> str:
    """Start all ranks: the launcher's words up to the program."""
    site, ranks, per_node, cpus = job.site, job.ranks, job.ranks_per_node, job.cpus_per_rank
    names = ["OMP_NUM_THREADS", *(setting.partition("=")[0] for setting in site.environment)]
    survive = " --with-ft ulfm --mca async_mpi_finalize 1" if job.survive else ""
    depth = f":PE={cpus}" if cpus > 1 else ""
    words = {
        "srun": f"srun --mpi={_PMI[site.mpi]} --kill-on-bad-exit=1 --cpu-bind=cores",
        "mpirun": f"mpirun -n {ranks} --map-by ppr:{per_node}:node{depth} "
        + " ".join(f"-x {n}" for n in names)
        + survive
        if site.mpi == "openmpi"
        else f"mpirun -n {ranks} -ppn {per_node} -genvall",
        "mpiexec": f"mpiexec -n {ranks} --ppn {per_node} --depth {cpus} --cpu-bind depth",
        "jsrun": f"jsrun --nrs {ranks} --rs_per_host {per_node} --tasks_per_rs 1 --cpu_per_rs {cpus} --bind rs"
        + (f" --gpu_per_rs {max(1, job.gpus_per_node // per_node)}" if job.gpus_per_node else ""),
        "flux": f"flux run -N {job.nodes} -n {ranks} -c {cpus} -o cpu-affinity=per-task"
        + (f" -g {max(1, job.gpus_per_node // per_node)}" if job.gpus_per_node else ""),
    }
    return " ".join([words[job.launcher], *map(_word, site.launcher_flags)])


def _staging(job: JobRequest) -> list[str]:
    if job.stage is None:
        return []
    return [
        "",
        "# Shards on node-local disk where there is room on every node, else where they are.",
        f'data=$("${{launcher[@]}}" fedhpc stage {_word(job.stage)} {_word(job.site.scratch)} | tail -n 1)',
        f"data=${{data:-{_word(job.stage)}}}",
    ]


def _command(job: JobRequest) -> str:
    words = ["fedhpc", *map(_word, job.command), "--out", '"$out"']
    if job.mode == "run":
        words.append("--resume")
    if job.stage is not None:
        words += ["--data.root", '"$data"']
    return " ".join(words)


def _progress(job: JobRequest) -> list[str]:
    what = _PROGRESS[job.mode]
    if not what:
        return []
    return [f"progress() {{ printf '%s\\n' {what}; }}", "before=$(progress)", ""]


def _ending(job: JobRequest, again: str) -> list[str]:
    lines: list[str] = []
    if job.mode == "run":
        lines += [
            'if [ -e "$out/done" ]; then  # the truth; launchers\' exit codes are not',
            "    exit 0",
            "fi",
        ]
    else:
        lines += ['if [ "$code" -eq 0 ]; then', "    exit 0", "fi"]
    worth = '[ "$code" -ne 2 ] && [ "$(progress)" != "$before" ]' if _PROGRESS[job.mode] else '[ "$code" -eq 75 ]'
    lines += [
        f'if [ -z "$cancelled" ] && {worth}; then',
        '    echo "not finished (exit code $code): handing it in again"',
        f"    {again}",
        "fi",
        'echo "not finished (exit code $code), and cancelled or nothing new saved: not handed in again" >&2',
        'exit "$((code == 0 || code == 75 ? 1 : code))"',
    ]
    return lines
