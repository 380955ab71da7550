"""Empirical risk minimisation: mean cross-entropy over all samples of the step."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fedhpc.data.samples import Batch
from fedhpc.objectives.base import Objective, StepReport


class Erm(Objective):
    """Cross-entropy averaged over the samples of all minibatches together (Vapnik, 1998)."""

    def backward(self, minibatches: list[Batch]) -> StepReport:
        """See `Objective.backward`."""
        x = minibatches[0].x if len(minibatches) == 1 else torch.cat([b.x for b in minibatches])
        y = minibatches[0].y if len(minibatches) == 1 else torch.cat([b.y for b in minibatches])
        loss = functional.cross_entropy(self.model(x), y)
        loss.backward()
        return StepReport(loss.detach())

    def predict(self, x: Tensor) -> Tensor:
        """See `Objective.predict`."""
        scores: Tensor = self.model(x)
        return scores


OBJECTIVE = Erm
