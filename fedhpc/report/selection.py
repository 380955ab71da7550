"""Model selection: which of a search's trials, stopped at which step, stands for an algorithm on a test environment.

A *candidate* is what one hyperparameter draw gave: its trials with the same seeds and different test environments. A
criterion turns a candidate into a validation accuracy and the test accuracy that goes with it; the candidate with the
largest validation accuracy is chosen. Criteria are plug-ins, `report/criteria/<name>.py`: pure functions over records.

Two sets of rules. `compat` is what DomainBed does, to the tie. The default differs where that surprises:

- only finished trials take part;
- a validation accuracy that is NaN never wins; a candidate that has no other drops out;
- of equally good candidates the smallest hparams seed wins (0: the defaults), not the largest;
- two trials that claim to be the same are an error, not a matter of the order of directories.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fedhpc import registry
from fedhpc.errors import FedhpcError

PACKAGE = "fedhpc.report.criteria"


@dataclass(frozen=True)
class Checkpoint:
    """Accuracies of a trial after one step, as fractions, by environment; NaN where one is not known.

    Attributes:
        step: the step after which it was measured; for a federation, the round.
        train: on the larger part of each environment ("in"): what a training environment is trained on, and where
            the accuracy of a test environment is reported.
        validation: on the smaller part ("out").
    """

    step: int
    train: tuple[float, ...]
    validation: tuple[float, ...]


@dataclass(frozen=True)
class TrialRecords:
    """One trial as selection sees it.

    Attributes:
        run: its folder, relative to the sweep's.
        dataset: name.
        algorithm: name of the objective.
        test_envs: environments that were held out.
        hparams_seed: seed of the hyperparameter draw; 0 stands for the defaults.
        trial_seed: seed of the repetition.
        checkpoints: in the order of the records.
        hparams: the hyperparameters.
        finished: whether it ran to its end.
        diverged: whether its last loss, or its model, is not finite.
    """

    run: str
    dataset: str
    algorithm: str
    test_envs: tuple[int, ...]
    hparams_seed: int
    trial_seed: int
    checkpoints: tuple[Checkpoint, ...]
    hparams: Mapping[str, Any] = field(default_factory=dict)
    finished: bool = True
    diverged: bool = False


@dataclass(frozen=True)
class Evidence:
    """One accuracy that a validation accuracy is the mean of."""

    run: str
    step: int
    environment: int
    split: str
    accuracy: float


@dataclass(frozen=True)
class Choice:
    """A candidate under a criterion.

    Attributes:
        hparams_seed: which candidate.
        step: where it is stopped.
        validation: the accuracy that it was chosen by.
        test: accuracy on the test environment at that step.
        run: folder of the trial that holds the chosen model.
        hparams: its hyperparameters.
        evidence: the accuracies behind `validation`.
    """

    hparams_seed: int
    step: int
    validation: float
    test: float
    run: str
    hparams: Mapping[str, Any] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Criterion(ABC):
    """A way to select. Subclasses say what a candidate is worth; ranking is common to all.

    Attributes:
        compat: follow DomainBed's rules for ties, NaN and unfinished trials.
        title: what the original prints.
        position: place in a report.
    """

    compat: bool = False
    title: ClassVar[str]
    position: ClassVar[int] = 100

    @abstractmethod
    def needs(self, test_env: int, num_environments: int) -> tuple[tuple[int, ...], ...]:
        """The sets of held-out environments whose trials it needs for one test environment, the reported one first."""

    @abstractmethod
    def score(self, candidate: Sequence[TrialRecords], test_env: int) -> Choice | None:
        """Judge one candidate from its trials; None if they do not suffice."""

    def rank(self, trials: Sequence[TrialRecords], test_env: int) -> list[Choice]:
        """All candidates that can be judged, best first.

        Args:
            trials: of one dataset, algorithm and trial seed.
            test_env: the test environment; trials that do not hold it out are passed over.

        Raises:
            FedhpcError: two trials have the same seeds and held-out environments (not with `compat`).
        """
        fitting = [t for t in trials if test_env in t.test_envs and (t.finished or self.compat)]
        fitting.sort(key=lambda t: t.run)
        if not self.compat:
            _refuse_doubles(fitting)
        candidates: dict[int, list[TrialRecords]] = {}
        for trial in fitting:
            candidates.setdefault(trial.hparams_seed, []).append(trial)
        scored = [self.score(candidates[seed], test_env) for seed in sorted(candidates)]
        found = [choice for choice in scored if choice is not None]
        if self.compat:  # ascending and stable, then reversed: of equals the last comes first
            return sorted(found, key=lambda c: _or_least(c.validation))[::-1]
        return sorted(found, key=lambda c: -c.validation)

    def choose(self, trials: Sequence[TrialRecords], test_env: int) -> Choice | None:
        """The best candidate, None if there is none; arguments as of `rank`."""
        ranking = self.rank(trials, test_env)
        return ranking[0] if ranking else None

    def best(self, choices: Sequence[Choice]) -> Choice | None:
        """Of one candidate's checkpoints in order, the first of the best; with `compat` a NaN in front stays."""
        if self.compat:
            return max(choices, key=lambda c: c.validation, default=None)
        known = [c for c in choices if not math.isnan(c.validation)]
        return max(known, key=lambda c: c.validation, default=None)


def _or_least(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def _refuse_doubles(trials: Sequence[TrialRecords]) -> None:
    seen: dict[tuple[Any, ...], str] = {}
    for t in trials:
        key = (t.dataset, t.algorithm, frozenset(t.test_envs), t.hparams_seed, t.trial_seed)
        if key in seen:
            raise FedhpcError(
                f"{seen[key]} and {t.run} are both {t.algorithm} on {t.dataset}, test environments "
                f"{list(t.test_envs)}, hparams seed {t.hparams_seed}, trial {t.trial_seed}; move one of them away"
            )
        seen[key] = t.run


def criteria(names: Sequence[str] | None = None, compat: bool = False) -> dict[str, Criterion]:
    """Criteria by name, in report order; without names, all there are.

    Raises:
        ConfigError: there is no criterion of a name.
    """
    chosen = registry.names(PACKAGE) if names is None else names
    found = {name: registry.load(PACKAGE, name).CRITERION(compat=compat) for name in chosen}
    return dict(sorted(found.items(), key=lambda item: (item[1].position, item[0])))
