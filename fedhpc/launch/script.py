"""The text of a batch script."""

from __future__ import annotations

from fedhpc.launch.launchers import environment_lines, launcher_lines
from fedhpc.launch.request import JobRequest
from fedhpc.launch.schedulers import KNOWN
from fedhpc.launch.words import word

_DATED = "stat -c '%n %y'"
_PROGRESS = {
    "run": _DATED + ' "$out"/checkpoints/round-* 2>/dev/null',
    "study": _DATED + ' "$out"/*/checkpoints/round-* "$out"/*/done 2>/dev/null',
    "sweep": """printf '%s\\n' "$out"/queue/*.done""",
}
"""What was saved: with dates, as a round that is evaluated is saved again; a sweep has too many files for `stat`."""

_SIGNALS = """\
job=
stopped=
cancelled=
trap 'stopped=yes; kill -USR1 "$job" 2>/dev/null' USR1  # time is running out: the ranks save and stop
trap 'stopped=yes; cancelled=yes; kill -USR1 "$job" 2>/dev/null' TERM
"""

_GUARD = """\
{left}
guard() {{  # a launcher that lost a host may never end: not after the work is done, nor before the time limit
    trap '' USR1  # some schedulers send it to all processes of a job
{warning}\
    until [ -e "$finished" ] || [ "$(left)" -le 5 ]; do sleep 2; done
    [ ! -e "$finished" ] || sleep 60
    kill -KILL "$job"
}}
"""

_WARNING = """\
    until [ -e "$finished" ] || [ "$(left)" -le {seconds} ]; do sleep 5; done
    [ -e "$finished" ] || kill -USR1 "$job"  # this scheduler gives no warning
"""

_START = """\
code=1
if [ -z "$stopped" ]; then
    code=0
    "${launcher[@]}" "${command[@]}" &
    job=$!
    guard >/dev/null 2>&1 &
    watch=$!
    wait "$job" || code=$?
    while kill -0 "$job" 2>/dev/null; do  # a signal ends `wait` early, the job goes on
        code=0
        wait "$job" || code=$?
    done
    kill "$watch" 2>/dev/null
fi
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
        _SIGNALS,
        f"out={word(job.out)}",
        *([f"script={word(job.script)}"] if "$script" in again else []),
        f"cd {word(job.directory)} || exit 1",
        'mkdir -p "$out/log"',
        f'echo "$(date +%FT%T) job {scheduler.job} on $(hostname)"',
        "",
        *environment_lines(job),
        *scheduler.end(job),
        "",
        *launcher_lines(job),
        *_staging(job),
        *_command(job),
        "",
        f"progress() {{ {_PROGRESS[job.mode]}; }}",
        "before=$(progress)",
        "",
        _guard(job),
        _START,
        *_ending(job, again),
    ]
    return "\n".join(parts) + "\n"


def _what(job: JobRequest) -> str:
    nodes = f"{job.nodes} node{'s' if job.nodes > 1 else ''}"
    many = f", {job.array} jobs that share one directory" if job.array else ""
    if job.array and not KNOWN[job.scheduler].has_arrays:
        many += " (hand it in that often)"
    return f"A {job.mode} on {job.ranks} MPI rank{'s' if job.ranks > 1 else ''} on {nodes}{many}."


def _guard(job: JobRequest) -> str:
    """Watches over the launcher from the background."""
    scheduler, warn = KNOWN[job.scheduler], job.site.warn_seconds
    # Not in jobs so short that the warning would meet ranks that have just been started.
    wanted = not scheduler.has_warning and warn and (job.seconds or 0) > 2 * warn
    return _GUARD.format(left=scheduler.left, warning=_WARNING.format(seconds=max(warn, 30)) if wanted else "")


def _staging(job: JobRequest) -> list[str]:
    if not job.stage:
        return []
    folders = " ".join(word(folder) for _, folder in job.stage)
    # By name: a compute node's folder may be out of sight of the host that runs the script.
    known = " | ".join([*(word(folder) for _, folder in job.stage), "*/fedhpc-[0-9]*-*"])
    stage = f'"${{launcher[@]}}" fedhpc stage {folders} {word(job.site.scratch)}'
    return [
        "",
        "# Shards on node-local disk where there is room on every node, else where they are.",
        f"staged=$({stage} | tail -n {len(job.stage)}) || staged=",
        'mapfile -t data <<<"$staged"',
        'for place in "${data[@]}"; do',
        f"    case $place in {known}) ;; *) data=() ;; esac  # a launcher may speak last",
        "done",
    ]


def _command(job: JobRequest) -> list[str]:
    """Where the command says that it has finished, and its words."""
    words = ["fedhpc", *job.command, "--out", '"$out"']
    for number, (option, folder) in enumerate(job.stage):
        words += [option, f'"${{data[{number}]:-{folder}}}"']
    if job.mode == "run":
        return ['finished="$out/done"', f"command=({' '.join([*words, '--resume'])})"]
    words += ["--exit-file", '"$finished"']
    stale = 'rm -f "$finished"  # process ids come back'
    return ['finished="$out/log/exit-$(hostname)-$$"', stale, f"command=({' '.join(words)})"]


def _ending(job: JobRequest, again: str) -> list[str]:
    worth = '[ "$(progress)" != "$before" ]'
    if job.mode == "sweep":  # a trial may be longer than a job; it stops at a checkpoint
        worth = f'{{ [ "$code" -eq 75 ] || {worth}; }}'
    return [
        'if [ -e "$finished" ]; then  # the truth; launchers\' exit codes are not',
        "    exit 0" if job.mode == "run" else '    exit "$(<"$finished")"',
        "fi",
        f'if [ -z "$cancelled" ] && [ "$code" -ne 2 ] && {worth}; then',
        '    echo "not finished (exit code $code): handing it in again"',
        f"    {again}",
        "fi",
        'echo "not finished (exit code $code), and cancelled or nothing new saved: not handed in again" >&2',
        'exit "$((code == 0 || code == 75 ? 1 : code))"',
    ]
