"""Matching feature distributions between environments: the skeleton of CORAL and MMD."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from itertools import combinations
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedhpc.data.samples import Batch
from fedhpc.objectives._domains import DomainObjective
from fedhpc.objectives.base import StepReport
from fedhpc.objectives.hparams import HParam, PowerOf


class Alignment(DomainObjective):
    """Mean cross-entropy over environments plus `mmd_gamma` times the mean distance between pairs of them.

    One forward per environment. The reported loss is the cross-entropy alone.
    """

    space: ClassVar[Mapping[str, HParam]] = {"mmd_gamma": HParam(1.0, PowerOf(10, -1, 1))}
    erm_without = "mmd_gamma"

    @abstractmethod
    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        """Distance of two samples of features [rows, num_features]."""

    def backward(self, minibatches: list[Batch]) -> StepReport:
        """See `Objective.backward`."""
        features = [self.embed(b.x) for b in minibatches]
        losses = [functional.cross_entropy(self.classify(z), b.y) for z, b in zip(features, minibatches, strict=True)]
        loss = torch.stack(losses).mean()
        distances = [self.distance(a, b) for a, b in combinations(features, 2)]
        penalty = torch.stack(distances).mean() if distances else torch.zeros_like(loss)
        (loss + self.number("mmd_gamma") * penalty).backward()
        self.step += 1
        return StepReport(loss.detach(), {"loss": loss.detach(), "penalty": penalty.detach()})
