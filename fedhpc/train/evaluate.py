"""From a model and samples to counts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from fedhpc.data.samples import Samples
from fedhpc.objectives.base import Objective
from fedhpc.train.local import Transform


@dataclass(frozen=True)
class Counts:
    """Correct predictions among `total` samples, and the sum of their cross-entropies."""

    correct: int
    total: int
    loss: float

    @property
    def accuracy(self) -> float:
        """Fraction correct; NaN without samples."""
        return self.correct / self.total if self.total else float("nan")


def evaluate(objective: Objective, samples: Samples, transform: Transform, batch_size: int = 256) -> Counts:
    """Count correct predictions, in evaluation mode and without gradients; the model is left in training mode."""
    correct, loss = 0, 0.0
    objective.eval()
    with torch.no_grad():
        for start in range(0, len(samples.y), batch_size):
            y = samples.y[start : start + batch_size]
            scores = objective.predict(transform(samples.x[start : start + batch_size], None, False))
            correct += int((scores.argmax(1) == y).sum())
            loss += float(functional.cross_entropy(scores, y, reduction="sum"))
    objective.train()
    return Counts(correct, len(samples.y), loss)
