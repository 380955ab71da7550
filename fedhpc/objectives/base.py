"""Objective: what a local step minimises. It fills gradients and never steps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedhpc.data.samples import Batch
from fedhpc.objectives.hparams import HParam
from fedhpc.tensors.vector import ParameterVector

OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]

MAIN = "main"
"""Name of the optimizer over the model's parameters; every solver has it."""


@dataclass(frozen=True)
class OptimizerGroup:
    """Parameters of the objective's own, outside the model, and the optimizer that steps them."""

    parameters: Sequence[nn.Parameter]
    make: OptimizerFactory


@dataclass(frozen=True)
class StepReport:
    """What one backward pass has to say.

    Attributes:
        loss: scalar, detached, on the device (read it rarely: that synchronises).
        metrics: further scalars by name, detached.
        skip: whether there is nothing to step on (no usable sample), so that the solver leaves the weights alone.
        steps: names of the optimizers that take a step.
        resets: names of the optimizers that forget their moments before it.
    """

    loss: Tensor
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    skip: bool = False
    steps: tuple[str, ...] = (MAIN,)
    resets: tuple[str, ...] = ()


class Objective(nn.Module):
    """A local objective over one model.

    Attributes:
        minibatches_per_step: how many minibatches one step draws from a client's samples.
        min_environments: fewest environments it is defined for.
        min_rows: fewest samples of an environment that it needs in a step.
        by_environment: whether a step takes one minibatch of each environment.
        space: its own hyperparameters, beside those that all have (`fedhpc.objectives.hparams`).
    """

    minibatches_per_step: ClassVar[int] = 1
    min_environments: ClassVar[int] = 1
    min_rows: ClassVar[int] = 1
    by_environment: ClassVar[bool] = False
    space: ClassVar[Mapping[str, HParam]] = {}

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

    def optimizers(self) -> dict[str, OptimizerGroup]:
        """Optimizers for parameters of the objective's own; the model's is the solver's `MAIN`."""
        return {}

    def begin(self) -> None:
        """Forget earlier steps: a new local training begins, maybe another client's."""

    def own_state(self) -> dict[str, Tensor]:
        """Everything but the model that the next step depends on, for a checkpoint; tensors are not copied."""
        return {name: value for name, value in self.state_dict().items() if not name.startswith("model.")}

    def load_own_state(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `own_state` returned.

        Raises:
            ValueError: names or shapes are those of another objective.
        """
        own = self.own_state()
        if {n: t.shape for n, t in own.items()} != {n: t.shape for n, t in state.items()}:
            raise ValueError(f"{type(self).__name__}: its saved state has other entries: {sorted(state)}")
        with torch.no_grad():
            for name, value in state.items():
                own[name].copy_(value)
