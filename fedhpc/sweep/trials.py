"""What a sweep consists of: a pure enumeration of trials, and each trial's identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from fedhpc.errors import ConfigError
from fedhpc.report.names import theirs
from fedhpc.report.results import PlannedTrial
from fedhpc.report.selection import Criterion
from fedhpc.report.trial_files import TRIALS
from fedhpc.seeding import text_hash

TestEnvs = tuple[int, ...]


@dataclass(frozen=True)
class TrialSpec:
    """Everything that decides the result of one trial, and nothing else (not where its data lie).

    Attributes:
        dataset: name of the dataset.
        algorithm: name of the objective.
        test_envs: environments that are held out.
        hparams_seed: seed of the hyperparameter draw; 0: defaults.
        trial_seed: seed of the repetition: splits, and with `hparams_seed` the draw.
        steps: updates.
        checkpoint_freq: updates between two evaluations.
        holdout_fraction: share of each environment that is kept for validation.
        profile: `paper` or `head`.
        hparams: hyperparameters that are given, whatever the draw.
        setup: model, transform and evaluation, where they differ from what the dataset asks for; nested plain values.
    """

    dataset: str
    algorithm: str
    test_envs: TestEnvs
    hparams_seed: int
    trial_seed: int
    steps: int
    checkpoint_freq: int
    holdout_fraction: float = 0.2
    profile: str = "paper"
    hparams: Mapping[str, Any] = field(default_factory=dict)
    setup: Mapping[str, Any] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        """DomainBed's seed of this run; our streams are derived from it by name."""
        dataset, algorithm = theirs(self.dataset), theirs(self.algorithm)
        return text_hash(dataset, algorithm, list(self.test_envs), self.hparams_seed, self.trial_seed)

    @cached_property
    def id(self) -> str:
        """Sixteen hexadecimal digits that stand for everything above; fields at their defaults do not enter."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def folder(self) -> str:
        """Its folder below the sweep's, fit for people: `trials/pacs/erm/e0+2-h1-t0-<id>`."""
        envs = "+".join(str(e) for e in self.test_envs)
        name = f"e{envs}-h{self.hparams_seed}-t{self.trial_seed}-{self.id}"
        return f"{TRIALS}/{self.dataset}/{self.algorithm}/{name}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values; what is at its default is left out, so that fields can be added without new identities."""
        found: dict[str, Any] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            if value != entry.default and value != {}:
                found[entry.name] = list(value) if isinstance(value, tuple) else value
        return found

    def full_dict(self) -> dict[str, Any]:
        """Plain values of all fields and the seed, for the record of what was done."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {**values, "test_envs": list(self.test_envs), "hparams": dict(self.hparams), "seed": self.seed}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrialSpec:
        """Rebuild from `to_dict` or `full_dict`."""
        known = {entry.name: values[entry.name] for entry in fields(cls) if entry.name in values}
        return cls(**{**known, "test_envs": tuple(values["test_envs"])})

    def planned(self) -> PlannedTrial:
        """The trial as a report knows it."""
        return PlannedTrial(
            self.id, self.folder, self.dataset, self.algorithm, self.test_envs, self.hparams_seed, self.trial_seed
        )


@dataclass(frozen=True)
class SweepDataset:
    """A dataset of a sweep and how long its trials train.

    Attributes:
        name: of the dataset.
        num_environments: how many environments it has.
        steps: updates per trial.
        checkpoint_freq: updates between two evaluations.
    """

    name: str
    num_environments: int
    steps: int
    checkpoint_freq: int


@dataclass(frozen=True)
class Axes:
    """What a sweep runs over.

    Attributes:
        algorithms: names of objectives.
        hparams_seeds: seeds of hyperparameter draws.
        trial_seeds: seeds of repetitions.
        shared: further fields of every `TrialSpec` (profile, hparams, ...).
    """

    algorithms: Sequence[str]
    hparams_seeds: Sequence[int]
    trial_seeds: Sequence[int]
    shared: Mapping[str, Any] = field(default_factory=dict)


def singles_and_pairs(num_environments: int) -> list[TestEnvs]:
    """All single test environments and all pairs, in the original's order."""
    singles = [(e,) for e in range(num_environments)]
    pairs = [(e, v) for e in range(num_environments) for v in range(e + 1, num_environments)]
    return sorted([*singles, *pairs])


def needed_test_envs(
    criteria: Mapping[str, Criterion], num_environments: int, test_envs: Sequence[int] | None = None
) -> list[TestEnvs]:
    """The sets of held-out environments that some criteria need.

    Args:
        criteria: by name.
        num_environments: of the dataset.
        test_envs: environments to be tested on; None: all of them.

    Raises:
        ConfigError: a set would leave no environment to train on.
    """
    wanted = range(num_environments) if test_envs is None else test_envs
    found: set[TestEnvs] = set()
    for name, criterion in criteria.items():
        needs = {envs for e in wanted for envs in criterion.needs(e, num_environments)}
        if any(len(envs) >= num_environments for envs in needs):
            raise ConfigError(
                f"sweep.criteria: {name} holds out up to {max(map(len, needs))} environments at once, but the dataset "
                f"has {num_environments}: nothing would be left to train on"
            )
        found |= needs
    return sorted(found)


def enumerate_trials(
    axes: Axes, datasets: Sequence[SweepDataset], test_envs: Mapping[str, Sequence[TestEnvs]]
) -> Iterator[TrialSpec]:
    """All trials, in the original's order: trial seed, dataset, algorithm, test environments, hparams seed.

    Args:
        axes: what the sweep runs over.
        datasets: the datasets.
        test_envs: sets of held-out environments by dataset.
    """
    for trial_seed in axes.trial_seeds:
        for dataset in datasets:
            for algorithm in axes.algorithms:
                for envs in test_envs[dataset.name]:
                    for hparams_seed in axes.hparams_seeds:
                        yield TrialSpec(
                            dataset=dataset.name,
                            algorithm=algorithm,
                            test_envs=envs,
                            hparams_seed=hparams_seed,
                            trial_seed=trial_seed,
                            steps=dataset.steps,
                            checkpoint_freq=dataset.checkpoint_freq,
                            **axes.shared,
                        )


def count_trials(
    trials: Sequence[TrialSpec], criteria: Mapping[str, Criterion], num_environments: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    """How many trials there are per dataset: under `all`, and under each criterion those that it needs.

    Args:
        trials: the sweep.
        criteria: by name.
        num_environments: by dataset.
    """
    counts: dict[str, dict[str, int]] = {}
    needs = {
        (dataset, name): set(needed_test_envs({name: criterion}, n))
        for dataset, n in num_environments.items()
        for name, criterion in criteria.items()
    }
    for trial in trials:
        count = counts.setdefault(trial.dataset, {"all": 0, **dict.fromkeys(criteria, 0)})
        count["all"] += 1
        for name in criteria:
            count[name] += trial.test_envs in needs[trial.dataset, name]
    return counts
