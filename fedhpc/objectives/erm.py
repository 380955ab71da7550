"""Empirical risk minimisation: mean cross-entropy over all samples of the step."""

from __future__ import annotations

from torch.nn import functional

from fedhpc.data.samples import Batch
from fedhpc.objectives._domains import DomainObjective, together
from fedhpc.objectives.base import StepReport


class Erm(DomainObjective):
    """Cross-entropy averaged over the samples of all minibatches together (Vapnik, 1998)."""

    needs_two_environments = False
    by_environment = False

    def backward(self, minibatches: list[Batch]) -> StepReport:
        """See `Objective.backward`."""
        x, y = together(minibatches)
        loss = functional.cross_entropy(self.model(x), y)
        loss.backward()
        return StepReport(loss.detach())


OBJECTIVE = Erm
