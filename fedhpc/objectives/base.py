"""Objective: what a local step minimises. It fills gradients and never steps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor, nn

from fedhpc.data.samples import Batch
from fedhpc.tensors.vector import ParameterVector


@dataclass(frozen=True)
class StepReport:
    """What one backward pass has to say.

    Attributes:
        loss: scalar, detached, on the device (read it rarely: that synchronises).
        metrics: further scalars by name, detached.
    """

    loss: Tensor
    metrics: Mapping[str, Tensor] = field(default_factory=dict)


class Objective(nn.Module):
    """A local objective over one model.

    Attributes:
        minibatches_per_step: how many minibatches one step draws from a client's samples.
        min_environments: fewest environments it is defined for.
    """

    minibatches_per_step: ClassVar[int] = 1
    min_environments: ClassVar[int] = 1

    def __init__(self, model: nn.Module, vector: ParameterVector) -> None:
        super().__init__()
        self.model = model
        self.vector = vector

    @abstractmethod
    def backward(self, minibatches: list[Batch]) -> StepReport:
        """Leave the gradient of the loss on the minibatches in `vector.grads`; the solver cleared them before."""

    @abstractmethod
    def predict(self, x: Tensor) -> Tensor:
        """Class scores [batch, classes] for inputs [batch, ...]."""
