"""From a model and samples to counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
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


def evaluate(
    objective: Objective,
    samples: Samples,
    transform: Transform,
    batch_size: int = 256,
    predict: Callable[[Tensor], Tensor] | None = None,
) -> Counts:
    """Count correct predictions, in evaluation mode and without gradients; the model is left in training mode.

    Args:
        objective: holds the model.
        samples: what is predicted.
        transform: pixels to model input.
        batch_size: samples per forward pass.
        predict: model input to class scores; None takes the objective's.
    """
    predict = predict or objective.predict
    correct, loss = 0, 0.0
    objective.eval()
    with torch.no_grad():
        for start in range(0, len(samples.y), batch_size):
            y = samples.y[start : start + batch_size]
            scores = predict(transform(samples.x[start : start + batch_size], None, False))
            right, summed = scores.argmax(1) == y, float(functional.cross_entropy(scores, y, reduction="sum"))
            if math.isnan(summed):  # to argmax a NaN is the largest: the first class would seem to be predicted
                right &= ~scores.isnan().any(1)
            correct += int(right.sum())
            loss += summed
    objective.train()
    return Counts(correct, len(samples.y), loss)
