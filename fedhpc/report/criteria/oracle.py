"""Test-domain validation (oracle): the accuracy on the validation part of the test environment itself.

Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", section 3: one query per candidate, so it is asked
about the last step only. Not a fair selection; an upper end for the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedhpc.report.selection import Choice, Criterion, Evidence, TrialRecords


@dataclass(frozen=True)
class Oracle(Criterion):
    """The candidate whose last step is best on held-out data of the test environment."""

    title: ClassVar[str] = "test-domain validation set (oracle)"
    position: ClassVar[int] = 3

    def needs(self, test_env: int, num_environments: int) -> tuple[tuple[int, ...], ...]:
        """See `Criterion.needs`."""
        return ((test_env,),)

    def score(self, candidate: Sequence[TrialRecords], test_env: int) -> Choice | None:
        """See `Criterion.score`."""
        ends = [(t, at) for t in candidate if t.test_envs == (test_env,) for at in t.checkpoints]
        if not ends:
            return None
        trial, at = sorted(ends, key=lambda end: end[1].step)[-1]
        validation = at.validation[test_env]
        if math.isnan(validation) and not self.compat:
            return None
        evidence = (Evidence(trial.run, at.step, test_env, "validation", validation),)
        return Choice(trial.hparams_seed, at.step, validation, at.train[test_env], trial.run, trial.hparams, evidence)


CRITERION = Oracle
