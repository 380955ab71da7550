"""Training-domain validation: the mean accuracy on the validation parts of the training environments.

Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", section 3. As in their program the environments
count alike, whatever their sizes, and the best step is taken (early stopping).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedhpc.report.selection import Checkpoint, Choice, Criterion, Evidence, TrialRecords


@dataclass(frozen=True)
class TrainingDomainValidation(Criterion):
    """The step, and the candidate, with the best mean over the training environments."""

    title: ClassVar[str] = "training-domain validation set"
    position: ClassVar[int] = 1

    def needs(self, test_env: int, num_environments: int) -> tuple[tuple[int, ...], ...]:
        """See `Criterion.needs`."""
        return ((test_env,),)

    def score(self, candidate: Sequence[TrialRecords], test_env: int) -> Choice | None:
        """See `Criterion.score`."""
        singles = [t for t in candidate if t.test_envs == (test_env,)]
        return self.best([_judge(t, checkpoint, test_env) for t in singles for checkpoint in t.checkpoints])


CRITERION = TrainingDomainValidation


def _judge(trial: TrialRecords, at: Checkpoint, test_env: int) -> Choice:
    evidence = tuple(
        Evidence(trial.run, at.step, env, "validation", accuracy)
        for env, accuracy in enumerate(at.validation)
        if env != test_env
    )
    mean = float(np.mean([e.accuracy for e in evidence])) if evidence else float("nan")
    return Choice(trial.hparams_seed, at.step, mean, at.train[test_env], trial.run, trial.hparams, evidence)
