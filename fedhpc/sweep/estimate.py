"""How long trials take: relative costs for the order, hours from trials that have finished."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedhpc.sweep.trials import TrialSpec

_WORK = {"irm": 1.1, "groupdro": 1.1, "mixup": 1.1, "mldg": 2.0, "coral": 1.2, "mmd": 1.3, "dann": 1.5, "cdann": 1.5}
"""Work of an update relative to ERM's; only the order of trials and first guesses rest on it."""
_EVALUATION = 1 / 3
"""Work of looking at a sample relative to training on it: one forward pass of a forward and a backward pass."""


@dataclass(frozen=True)
class DatasetFacts:
    """What a plan needs to know about a dataset.

    Attributes:
        environments: their names.
        sizes: samples of each; 0 where that is not known before the data are there.
        height, width, channels: of the images.
    """

    environments: tuple[str, ...]
    sizes: tuple[int, ...]
    height: int
    width: int
    channels: int


def cost(spec: TrialSpec, batch_size: int, facts: DatasetFacts) -> float:
    """Work of a trial in images trained on, weighted by their size."""
    num_training = len(facts.sizes) - len(spec.test_envs)
    training = spec.steps * batch_size * num_training * _WORK.get(spec.algorithm, 1.0)
    pixels = facts.height * facts.width * facts.channels
    evaluated = sum(facts.sizes)
    if not spec.setup.get("train_accuracy", True):
        seen = sum(size for env, size in enumerate(facts.sizes) if env not in spec.test_envs)
        evaluated -= int(seen * (1 - spec.holdout_fraction))
    return (training + _EVALUATION * num_evaluations(spec) * evaluated) * pixels


def num_evaluations(spec: TrialSpec) -> int:
    """After the first step, then every `checkpoint_freq` steps, and after the last."""
    return 1 + (spec.steps - 1) // spec.checkpoint_freq + ((spec.steps - 1) % spec.checkpoint_freq > 0)


@dataclass(frozen=True)
class Timed:
    """A trial that has been timed: its dataset, algorithm, cost and seconds."""

    dataset: str
    algorithm: str
    cost: float
    seconds: float


class Rates:
    """Seconds per cost of timed trials: of the same dataset and algorithm, else of the dataset, else of all."""

    def __init__(self, timed: Iterable[Timed]) -> None:
        self._sums: dict[tuple[str, ...], tuple[float, float]] = {}
        for trial in timed:
            for key in ((trial.dataset, trial.algorithm), (trial.dataset,), ()):
                seconds, work = self._sums.get(key, (0.0, 0.0))
                self._sums[key] = (seconds + trial.seconds, work + trial.cost)

    def seconds(self, dataset: str, algorithm: str, work: float) -> float | None:
        """How long a trial takes; None if nothing has been timed."""
        for key in ((dataset, algorithm), (dataset,), ()):
            seconds, known = self._sums.get(key, (0.0, 0.0))
            if known:
                return work * seconds / known
        return None


def seconds_by_dataset(
    trials: Sequence[TrialSpec], costs: Mapping[str, float], rates: Rates
) -> dict[str, float] | None:
    """Seconds that trials take one after the other, by dataset; None if nothing has been timed.

    Args:
        trials: what is to be run.
        costs: of each trial, by id.
        rates: from timed trials.
    """
    found: dict[str, float] = {}
    for trial in trials:
        seconds = rates.seconds(trial.dataset, trial.algorithm, costs[trial.id])
        if seconds is None:
            return None
        found[trial.dataset] = found.get(trial.dataset, 0.0) + seconds
    return found


def duration(seconds: float) -> str:
    """`45 s`, `12.3 min` or `7.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"
