"""Mixup between environments: convex combinations of samples of two environments and of their losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedhpc.data.samples import Batch
from fedhpc.objectives._domains import DomainObjective, ring
from fedhpc.objectives.base import StepReport
from fedhpc.objectives.hparams import HParam, PowerOf


class Mixup(DomainObjective):
    """Environments form a random ring; neighbours are mixed row by row (Wang et al., 2020, after Zhang et al., 2018).

    One weight ~ Beta(`mixup_alpha`, `mixup_alpha`) for a whole pair; the larger minibatch of a pair is cut.
    """

    space: ClassVar[Mapping[str, HParam]] = {"mixup_alpha": HParam(0.2, PowerOf(10, -1, 1))}

    def backward(self, minibatches: list[Batch]) -> StepReport:
        """See `Objective.backward`."""
        draws, alpha = self.setting.draws, self.number("mixup_alpha")
        pairs = ring(draws.permutation(self.step, len(minibatches)))
        losses = []
        for index, (i, j) in enumerate(pairs):
            weight = draws.mixing(self.step, index, alpha)
            losses.append(self._mixed_loss(minibatches[i], minibatches[j], weight))
        loss = torch.stack(losses).sum() / len(minibatches)
        loss.backward()
        self.step += 1
        return StepReport(loss.detach(), {"loss": loss.detach()})

    def _mixed_loss(self, a: Batch, b: Batch, weight: float) -> Tensor:
        n = min(len(a), len(b))
        scores = self.model(weight * a.x[:n] + (1 - weight) * b.x[:n])
        first, second = functional.cross_entropy(scores, a.y[:n]), functional.cross_entropy(scores, b.y[:n])
        return weight * first + (1 - weight) * second


OBJECTIVE = Mixup
