"""GroupDRO: weigh environments by their loss, multiplicatively."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedhpc.data.samples import Batch
from fedhpc.objectives._domains import DomainObjective
from fedhpc.objectives.base import StepReport
from fedhpc.objectives.hparams import HParam, PowerOf
from fedhpc.objectives.setting import Setting
from fedhpc.tensors.vector import ParameterVector


class GroupDro(DomainObjective):
    """Σ_d q_d·l_d with q_d ← q_d·exp(η·l_d), then normalised, before it weighs (Sagawa et al., 2020).

    Profile `paper` divides the loss by the number of minibatches, `head` does not. One forward per environment.

    Attributes:
        q: [num_environments] weights of the environments; part of the state.
    """

    space: ClassVar[Mapping[str, HParam]] = {"groupdro_eta": HParam(1e-2, PowerOf(10, -3, -1))}
    erm_without = "groupdro_eta"
    q: Tensor

    def __init__(self, model: nn.Module, vector: ParameterVector, setting: Setting | None = None) -> None:
        super().__init__(model, vector, setting)
        self.register_buffer("q", torch.ones(self.setting.num_environments).to(vector.weights))

    def backward(self, minibatches: list[Batch]) -> StepReport:
        """See `Objective.backward`."""
        here = self.environments(minibatches)
        losses = torch.stack([functional.cross_entropy(self.model(b.x), b.y) for b in minibatches])
        with torch.no_grad():
            self.q[here] *= (self.number("groupdro_eta") * losses).exp()
            self.q /= self.q.sum()
        loss = torch.dot(losses, self.q[here])
        if self.setting.profile == "paper":
            loss = loss / len(minibatches)
        loss.backward()
        self.step += 1
        return StepReport(loss.detach(), {"loss": loss.detach()})


OBJECTIVE = GroupDro
