"""What a reader of a table of runs should know beside its figures: what is wrong, and what keeps runs apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fedhpc.config import diff
from fedhpc.report.collect import RunSummary
from fedhpc.report.studies import unfinished

CAPTION = (
    "accuracy: unweighted mean over clients, each on its own test data; min, worst tenth (mean), std: over clients"
)
_TASK = ("model", "data", "partition", "scenario", "generalize")
"""Sections that say what is learned from what."""
_SAME_TASK = ("data.root", "data.memory")
_MOST_NAMED = 6


def notes(runs: Sequence[RunSummary]) -> Iterator[str]:
    """One line each, about single runs first, then about their comparison."""
    for run in runs:
        yield from _of_one(run)
    yield from _early(runs)
    yield from _unlike(runs)


def _of_one(run: RunSummary) -> Iterator[str]:
    yield from (f"{run.name}: {problem}" for problem in run.problems)
    if run.status == "unfinished":
        yield f"{run.name}: {unfinished(Path(run.directory))}"
    if run.diverged:
        yield f"{run.name}: {run.diverged} client updates were skipped because they diverged"


def _early(runs: Sequence[RunSummary]) -> Iterator[str]:
    """Runs that were stopped by what they are reported on."""
    early = [run.name for run in runs if _ended_at_target(run)]
    if early:
        yield (
            f"ended at the target, before their last round: {_some(early)}; their accuracy is of that moment, which "
            "was chosen by accuracy on test data"
        )


def _ended_at_target(run: RunSummary) -> bool:
    if run.status != "finished" or run.time_to_accuracy is None or run.rounds is None:
        return False
    return run.rounds_planned is not None and run.rounds < run.rounds_planned


def _unlike(runs: Sequence[RunSummary]) -> Iterator[str]:
    """Keys of model, data and partition that runs do not share."""
    known = [run for run in runs if run.settings]
    trees = [{name: run.settings[name] for name in _TASK if name in run.settings} for run in known]
    keys = sorted({key for tree in trees for key in diff(trees[0], tree)} - set(_SAME_TASK))
    if "data.dataset" not in keys and len({run.data_digest for run in known if run.data_digest}) > 1:
        keys.insert(0, "the content of data.root")
    if keys:
        yield f"these runs are not of one task, compare with care; they differ in {_some(keys)}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
