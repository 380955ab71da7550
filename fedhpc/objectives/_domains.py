"""What the domain-generalization objectives share: hyperparameters, state and forward passes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedhpc.data.samples import Batch
from fedhpc.errors import ConfigError
from fedhpc.objectives.base import Objective, OptimizerFactory
from fedhpc.objectives.hparams import COMMON, Value
from fedhpc.objectives.setting import Setting
from fedhpc.tensors.optimizers import light
from fedhpc.tensors.vector import ParameterVector


class DomainObjective(Objective):
    """An objective over one minibatch per environment.

    `StepReport.metrics` holds what DomainBed logs, under its names. Where a model's features pass dropout on their
    way to the classifier, features here are those after dropout.

    Attributes:
        step: steps done since the training began; part of the state.
        needs_two_environments: with a single one this objective is plain ERM.
        erm_without: the hyperparameter that, if it is 0, makes it ERM on minibatches of equal size, if there is one.
    """

    needs_two_environments: ClassVar[bool] = True
    erm_without: ClassVar[str | None] = None
    by_environment: ClassVar[bool] = True
    step: int

    def __init__(self, model: nn.Module, vector: ParameterVector, setting: Setting | None = None) -> None:
        super().__init__(model, vector)
        self.setting = setting or Setting()
        if self.setting.num_environments < self.min_environments:
            raise ConfigError(
                f"objective {self.name()}: needs samples of at least {self.min_environments} environments, "
                f"got {self.setting.num_environments}"
            )
        self.step = 0
        self._first: dict[str, Tensor] | None = None

    @classmethod
    def name(cls) -> str:
        """Its key: the name of its file."""
        return cls.__module__.rsplit(".", 1)[-1]

    @classmethod
    def remarks(cls, setting: Setting) -> list[str]:
        """What a plan should say before it trains this objective in a setting; one line each."""
        if cls.needs_two_environments and setting.num_environments == 1:
            return [f"{cls.name()} with one training environment is ERM"]
        if cls.erm_without is not None and not cls.hparam(setting, cls.erm_without):
            return [f"{cls.name()} with {cls.erm_without} 0 is ERM"]
        return []

    @classmethod
    def hparam(cls, setting: Setting, name: str) -> Value:
        """The value of a hyperparameter in a setting."""
        if name in setting.hparams:
            return setting.hparams[name]
        return (cls.space[name] if name in cls.space else COMMON[name]).default

    def number(self, name: str) -> float:
        """The value of a hyperparameter."""
        return float(self.hparam(self.setting, name))

    def main_optimizer(self) -> OptimizerFactory:
        """The optimizer that the study trains the model with: Adam with `lr` and `weight_decay`."""
        return partial(light(torch.optim.Adam), lr=self.number("lr"), weight_decay=self.number("weight_decay"))

    def predict(self, x: Tensor) -> Tensor:
        """See `Objective.predict`."""
        scores: Tensor = self.model(x)
        return scores

    def begin(self) -> None:
        """See `Objective.begin`; the state of the first call is the one that every training begins with."""
        if self._first is None:
            self._first = {name: value.clone() for name, value in self.own_state().items()}
        else:
            self.load_own_state(self._first)

    def own_state(self) -> dict[str, Tensor]:
        """See `Objective.own_state`; the step counter is part of it."""
        return {**super().own_state(), "step": torch.tensor(self.step)}

    def load_own_state(self, state: Mapping[str, Tensor]) -> None:
        """See `Objective.load_own_state`."""
        super().load_own_state(state)
        self.step = int(state["step"])

    def embed(self, x: Tensor) -> Tensor:
        """Features [B, num_features] of a model input, after dropout."""
        features: Tensor = self.model.dropout(self.model.features(x))  # type: ignore[operator]
        return features

    def classify(self, features: Tensor) -> Tensor:
        """Class scores [B, num_classes] of features."""
        scores: Tensor = self.model.classifier(features)  # type: ignore[operator]
        return scores

    def environments(self, minibatches: list[Batch]) -> list[int]:
        """Environment of each minibatch.

        Raises:
            ConfigError: one that the objective was not built for.
        """
        found = [i if b.environment is None else b.environment for i, b in enumerate(minibatches)]
        if max(found) >= self.setting.num_environments:
            raise ConfigError(
                f"objective {self.name()}: a minibatch comes from environment {max(found)}, but it was built for "
                f"{self.setting.num_environments}"
            )
        return found


def together(minibatches: list[Batch]) -> tuple[Tensor, Tensor]:
    """Inputs and labels of all minibatches, one after the other."""
    if len(minibatches) == 1:
        return minibatches[0].x, minibatches[0].y
    return torch.cat([b.x for b in minibatches]), torch.cat([b.y for b in minibatches])


def ring(order: list[int]) -> list[tuple[int, int]]:
    """Each entry with the next, the last with the first; a single entry with itself."""
    return list(zip(order, order[1:] + order[:1], strict=True))
