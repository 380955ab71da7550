"""IRM: one classifier that is optimal in every environment, by a penalty on its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedhpc.data.samples import Batch
from fedhpc.objectives._domains import DomainObjective, together
from fedhpc.objectives.base import MAIN, StepReport
from fedhpc.objectives.hparams import HParam, PowerOf
from fedhpc.objectives.setting import Setting


def scale_gradient(scores: Tensor, labels: Tensor) -> Tensor:
    """Gradient of the mean cross-entropy of s·scores with respect to s at s = 1; 0 without rows.

    Args:
        scores: [n, classes].
        labels: [n].
    """
    expected = (scores.softmax(1) * scores).sum(1)
    observed = scores.gather(1, labels.unsqueeze(1)).squeeze(1)
    return (expected - observed).sum() / max(len(labels), 1)


def penalty(scores: Tensor, labels: Tensor) -> Tensor:
    """Unbiased estimate of the squared gradient: the product over the even and the odd rows, so it can be negative."""
    return scale_gradient(scores[0::2], labels[0::2]) * scale_gradient(scores[1::2], labels[1::2])


class Irm(DomainObjective):
    """Mean over environments of cross-entropy plus w times `penalty` (Arjovsky et al., 2019).

    w is 1 for the first `irm_penalty_anneal_iters` steps, then `irm_lambda`; at the change the optimizer starts anew.
    """

    needs_two_environments = False
    space: ClassVar[Mapping[str, HParam]] = {
        "irm_lambda": HParam(100.0, PowerOf(10, -1, 5)),
        "irm_penalty_anneal_iters": HParam(500, PowerOf(10, 0, 4, integer=True)),
    }

    @classmethod
    def remarks(cls, setting: Setting) -> list[str]:
        """See `DomainObjective.remarks`."""
        found = super().remarks(setting)
        if setting.num_environments == 1:
            found.append("irm with one training environment keeps its penalty, but there is nothing to be invariant to")
        return found

    def backward(self, minibatches: list[Batch]) -> StepReport:
        """See `Objective.backward`."""
        warm_up = int(self.number("irm_penalty_anneal_iters"))
        weight = self.number("irm_lambda") if self.step >= warm_up else 1.0
        x, _ = together(minibatches)
        scores = self.model(x).split([len(b) for b in minibatches])
        pairs = list(zip(scores, [b.y for b in minibatches], strict=True))
        nll = torch.stack([functional.cross_entropy(o, y) for o, y in pairs]).mean()
        mean_penalty = torch.stack([penalty(o, y) for o, y in pairs]).mean()
        loss = nll + weight * mean_penalty
        loss.backward()
        resets = (MAIN,) if self.step == warm_up else ()
        self.step += 1
        metrics = {"loss": loss.detach(), "nll": nll.detach(), "penalty": mean_penalty.detach()}
        return StepReport(loss.detach(), metrics, resets=resets)


OBJECTIVE = Irm
