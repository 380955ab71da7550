"""Leave-one-domain-out cross-validation: how well trials do on a training environment that they had to do without.

Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", section 3. For test environment e there is, for
every other environment v, a trial that holds out both; its accuracy on v validates. The mean over v at a step that all
of these trials and the one that holds out e alone have recorded judges the latter at that step; the best step counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedhpc.report.selection import Checkpoint, Choice, Criterion, Evidence, TrialRecords


@dataclass(frozen=True)
class LeaveOneDomainOut(Criterion):
    """The step, and the candidate, with the best mean over environments left out in turn."""

    title: ClassVar[str] = "leave-one-domain-out cross-validation"
    position: ClassVar[int] = 2

    def needs(self, test_env: int, num_environments: int) -> tuple[tuple[int, ...], ...]:
        """See `Criterion.needs`."""
        pairs = ((min(test_env, v), max(test_env, v)) for v in range(num_environments) if v != test_env)
        return ((test_env,), *pairs)

    def score(self, candidate: Sequence[TrialRecords], test_env: int) -> Choice | None:
        """See `Criterion.score`."""
        return self.best(list(_common_steps(candidate, test_env)))


CRITERION = LeaveOneDomainOut


def _common_steps(candidate: Sequence[TrialRecords], test_env: int) -> Iterator[Choice]:
    """The steps, ascending, at which nothing is missing."""
    singles: dict[int, list[tuple[TrialRecords, Checkpoint]]] = {}
    pairs: dict[int, dict[int, Evidence]] = {}
    for trial in candidate:
        for at in trial.checkpoints:
            if len(trial.test_envs) == 1:
                singles.setdefault(at.step, []).append((trial, at))
            elif len(trial.test_envs) == 2:
                (left_out,) = set(trial.test_envs) - {test_env}
                found = Evidence(trial.run, at.step, left_out, "train", at.train[left_out])
                pairs.setdefault(at.step, {})[left_out] = found
    for step in sorted(singles):
        if len(singles[step]) != 1:
            continue
        trial, at = singles[step][0]
        others = [env for env in range(len(at.validation)) if env != test_env]
        by_env = pairs.get(step, {})
        if others and all(env in by_env for env in others):
            evidence = tuple(by_env[env] for env in others)
            mean = float(np.sum([e.accuracy for e in evidence]) / len(evidence))
            yield Choice(trial.hparams_seed, step, mean, at.train[test_env], trial.run, trial.hparams, evidence)
