"""The end of the job's time, asked of the batch system, and whether it is too near to begin another round."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping

JOB_END = "FEDHPC_JOB_END"
"""Variable with the end of the job in seconds since 1970; generated scripts set it where nothing else tells."""

_LEAST_MARGIN = 10.0
"""Seconds kept for the way out, and for saving before a checkpoint was measured; scripts kill what is left at 5."""
_ROUNDS = 1.5
_PATIENCE = 20.0
_EXTENDED = 300.0
"""Seconds by which the batch system's word must be later than what the job was told to count as an extension."""
_ASK_AGAIN = 600.0
"""Seconds between questions where no end is known: a batch system may be too busy to answer the first time."""


def job_end(environment: Mapping[str, str] | None = None, fresh: bool = False) -> float | None:
    """When the batch system will end this job (seconds since 1970), or None where nothing says so.

    Slurm, PBS, LSF and Flux are asked by command, so only one rank should call this.

    Args:
        environment: variables of the job; None: those of this process.
        fresh: ask the batch system also where variables say it. They hold the end as it was when the job began, and
            limits are extended. An answer that is only a little later is no extension but a clock that lags.
    """
    env = os.environ if environment is None else environment
    told = _told(env)
    if told is not None and not fresh:
        return told
    asked = _asked(env)
    if told is None or asked is None:
        return told if asked is None else asked
    return told if told < asked < told + _EXTENDED else asked


def job_end_now() -> float | None:
    """As `job_end`, but by the batch system's word if it gives one."""
    return job_end(fresh=True)


def _told(env: Mapping[str, str]) -> float | None:
    """What the variables say."""
    return next((end for name in (JOB_END, "SLURM_JOB_END_TIME") if (end := _positive(env.get(name)))), None)


def _asked(env: Mapping[str, str]) -> float | None:
    """What the batch system says."""
    for variable, ask in _ASK.items():
        if job := env.get(variable):
            left = ask(job, env)
            return None if left is None else time.time() + left
    return None


def _slurm(job: str, env: Mapping[str, str]) -> float | None:
    """To Slurm the number of one member of an array means all of them."""
    if array := env.get("SLURM_ARRAY_JOB_ID"):
        job = f"{array}_{env.get('SLURM_ARRAY_TASK_ID', '')}"
    return clock_seconds(_output("squeue", "-h", "-j", job, "-o", "%L"))


def _pbs(job: str, env: Mapping[str, str]) -> float | None:
    """Counted from the start: `resources_used.walltime` is minutes old."""
    lines = [line.strip().partition(" = ")[::2] for line in (_output("qstat", "-f", job) or "").splitlines()]
    job_says = dict(lines)
    limit = clock_seconds(job_says.get("Resource_List.walltime"))
    try:
        start = time.mktime(time.strptime(job_says.get("stime", "")))
    except (ValueError, OverflowError):
        return None
    return None if limit is None else start + limit - time.time()


def _lsf(job: str, env: Mapping[str, str]) -> float | None:
    """`bjobs` gives hours and minutes, followed by a letter: `1:05 L`; members of an array share a number."""
    if (index := env.get("LSB_JOBINDEX", "0")) not in ("", "0"):
        job = f"{job}[{index}]"
    text = (_output("bjobs", "-noheader", "-o", "time_left", job) or "").split()
    return clock_seconds(f"{text[0]}:00") if text else None


def _flux(job: str, env: Mapping[str, str]) -> float | None:
    return _positive(_output("flux", "job", "timeleft"))


_ASK: dict[str, Callable[[str, Mapping[str, str]], float | None]] = {
    "SLURM_JOB_ID": _slurm,
    "PBS_JOBID": _pbs,
    "LSB_JOBID": _lsf,
    "FLUX_JOB_ID": _flux,
}


def clock_seconds(text: str | None) -> float | None:
    """Seconds of `1-02:03:04`, `02:03:04` or `03:04`; None for anything else (`UNLIMITED`, say)."""
    days, dash, clock = (text or "").strip().rpartition("-")
    parts = clock.split(":")
    if not all(p.isdigit() for p in parts) or (dash and not days.isdigit()) or not 2 <= len(parts) <= 3:
        return None
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return float(seconds + 86400 * int(days or 0))


def _positive(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


class Deadline:
    """Says when to stop: the time left is less than 1.5 times the longest round so far plus a checkpoint and 10 s.

    Args:
        ask: gives the end of the job, or None for none.
        again: gives it as it is now; asked before a run is stopped, and from time to time where no end is known.
        now: the clock that the end is on.
    """

    def __init__(
        self,
        ask: Callable[[], float | None] = job_end,
        again: Callable[[], float | None] = job_end_now,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._again, self._now = again, now
        self._end = ask()
        self._round, self._since, self._longest = -1, now(), 0.0
        self._asked = now()

    def is_near(self, round: int, save_seconds: float = 0.0) -> bool:
        """Whether a run should stop at the end of this round.

        Args:
            round: rounds done; asked at least once in each, so that the time between two is a round with all it has.
            save_seconds: longest checkpoint so far.
        """
        now = self._now()
        if round != self._round:
            self._longest = max(self._longest, now - self._since)
            self._round, self._since = round, now
        if self._end is None and now - self._asked >= _ASK_AGAIN:
            self._end, self._asked = self._again(), now
        if self._end is None:
            return False
        needed = _ROUNDS * self._longest + save_seconds + _LEAST_MARGIN
        if self._end - self._now() >= needed:  # a question takes time
            return False
        self._end = self._again() or self._end
        return self._end - self._now() < needed
