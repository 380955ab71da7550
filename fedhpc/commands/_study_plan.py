"""What a study has planned and how far it is, in its directory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from fedhpc.commands._configs import load_run, without_last_root
from fedhpc.config import PlannedRun, plan_study
from fedhpc.errors import FedhpcError
from fedhpc.report.collect import CONFIG, DONE, STUDY
from fedhpc.report.studies import StudyRun, is_study, plan_text, read_plan, why_failed
from fedhpc.runs.rundir import in_use, refuse_other, write_atomically

_LOCK = ".planning"
State = Literal["done", "running", "failed", "missing"]


def write_plan(out: Path, files: Sequence[str], options: Sequence[str], planned: Iterable[PlannedRun]) -> None:
    """Write a study's plan; one that is there already may grow. Jobs that do so at once wait for each other.

    Args:
        out: the study's directory, made if need be.
        files: of the command.
        options: of the command: keys of the study and of its runs.
        planned: what it plans.

    Raises:
        ConfigError: the directory holds a run or a sweep.
        FedhpcError: it cannot be written, or holds a plan that cannot be read.
    """
    from fedhpc.sweep.lock import locked

    refuse_other(out, "study")
    places = tuple(os.path.abspath(file) for file in files)
    runs = [StudyRun(p.name, p.config.seed, places, tuple(options), p.config.to_dict()) for p in planned]
    try:
        if is_study(out) and (out / STUDY).read_text(encoding="utf-8") == _grown(out, runs):
            return
        out.mkdir(parents=True, exist_ok=True)
        with locked(out / _LOCK):
            write_atomically(out / STUDY, _grown(out, runs))
    except OSError as error:
        raise FedhpcError(f"{out}: cannot be written ({error.strerror}); choose another --out") from None


def without_copy(
    files: Sequence[str], options: Sequence[str], planned: Sequence[PlannedRun]
) -> tuple[Sequence[str], Sequence[PlannedRun]]:
    """A command's options and plan with the folder that the data were copied from, in place of this job's copy.

    For what the study's directory keeps; see `before_copy`.
    """
    rest = without_last_root(options)
    if rest is None:
        return options, planned
    from fedhpc.sweep.stored import same_data  # numpy

    try:
        before = plan_study(files, rest, load_run)
    except FedhpcError:
        return options, planned  # without them there is no plan
    pairs = zip(before, planned, strict=True)
    same = all(same_data(one.config.data.root, other.config.data.root) for one, other in pairs)
    return (rest, before) if same else (options, planned)


def _grown(out: Path, runs: Iterable[StudyRun]) -> str:
    """The plan with more runs; what has begun stays as it was planned when it began."""
    before = read_plan(out) if is_study(out) else {}
    new = {run.name: run for run in runs if run.name not in before or not (out / run.name / CONFIG).exists()}
    return plan_text({**before, **new}.values())


@dataclass(frozen=True)
class StudyStatus:
    """How far a study is.

    Attributes:
        runs: name, seed, state of every run, and why it failed.
    """

    runs: tuple[tuple[str, int, State, str], ...]

    def count(self, state: State) -> int:
        """How many runs are in a state."""
        return sum(run[2] == state for run in self.runs)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        numbers: dict[str, Any] = {state: self.count(state) for state in get_args(State)}
        runs = [{"name": n, "seed": seed, "state": state, "why": why} for n, seed, state, why in self.runs]
        return {**numbers, "runs": runs}

    def text(self) -> str:
        """For a person."""
        lines = [", ".join(f"{self.count(state)} {state}" for state in get_args(State))]
        lines += [f"  {n}: {state}{f': {why}' if why else ''}" for n, _, state, why in self.runs if state != "done"]
        return "\n".join(lines)

    def plan(self) -> str:
        """What would be run, in order, for a person."""
        lines = [f"{n}  seed {seed}  {state}" for n, seed, state, _ in self.runs]
        done = self.count("done")
        runs = "1 run" if len(self.runs) == 1 else f"{len(self.runs)} runs"
        return "\n".join([*lines, f"{runs} planned, {done} done, {len(self.runs) - done} remain"])


def study_status(out: Path | None, planned: Iterable[PlannedRun], stored: bool = True) -> StudyStatus:
    """How far a study is; writes nothing.

    Args:
        out: its directory; None for one that was not begun.
        planned: by the command.
        stored: also runs that earlier commands planned there.

    Raises:
        ConfigError: the directory holds a run or a sweep.
        FedhpcError: it holds a plan that cannot be read.
    """
    if out is not None:
        refuse_other(out, "study")
    before: Mapping[str, StudyRun] = read_plan(out) if stored and out is not None and is_study(out) else {}
    seeds = {**{run.name: run.config.seed for run in planned}, **{run.name: run.seed for run in before.values()}}
    return StudyStatus(tuple((name, seed, *_state(out and out / name)) for name, seed in seeds.items()))


def _state(place: Path | None) -> tuple[State, str]:
    """Of a run: what is done stays so, and what another job works on may have failed before."""
    if place is None or not place.is_dir():
        return "missing", ""
    if (place / DONE).exists():
        return "done", ""
    if in_use(place):
        return "running", ""
    why = why_failed(place)
    return ("failed" if why else "missing"), why
