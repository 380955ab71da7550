"""Mixup inside one batch: convex combinations of its samples, whatever environments they are from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedhpc.data.samples import Batch
from fedhpc.objectives._domains import DomainObjective, together
from fedhpc.objectives.base import StepReport
from fedhpc.objectives.hparams import HParam, PowerOf


class BatchMixup(DomainObjective):
    """Each sample is mixed with one of the same batch, drawn without replacement (Zhang et al., 2018).

    One weight ~ Beta(`batch_mixup_alpha`, `batch_mixup_alpha`) for the whole batch.
    """

    space: ClassVar[Mapping[str, HParam]] = {"batch_mixup_alpha": HParam(1.0, PowerOf(10, -1, 1))}
    needs_two_environments = False
    by_environment = False

    def backward(self, minibatches: list[Batch]) -> StepReport:
        """See `Objective.backward`."""
        x, y = together(minibatches)
        share = self.setting.draws.mixing(self.step, 0, self.number("batch_mixup_alpha"))
        order = torch.tensor(self.setting.draws.permutation(self.step, len(y)), device=y.device)
        scores = self.model(mixed(x, share, order))
        own, other = functional.cross_entropy(scores, y), functional.cross_entropy(scores, y[order])
        loss = share * own + (1 - share) * other
        loss.backward()
        self.step += 1
        return StepReport(loss.detach())


def mixed(x: Tensor, share: float, order: Tensor) -> Tensor:
    """`share` of each sample and the rest of the one that `order` puts beside it."""
    return share * x + (1 - share) * x[order]


OBJECTIVE = BatchMixup
