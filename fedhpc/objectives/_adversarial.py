"""A discriminator that tells environments apart from features, and features that fool it: DANN and CDANN."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedhpc.data.samples import Batch
from fedhpc.models._layers import Perceptron
from fedhpc.objectives._domains import DomainObjective, together
from fedhpc.objectives.base import MAIN, OptimizerFactory, OptimizerGroup, StepReport
from fedhpc.objectives.hparams import DROPOUT, LEARNING_RATE, WEIGHT_DECAY, Choice, HParam, PowerOf
from fedhpc.objectives.setting import Setting
from fedhpc.tensors.optimizers import light
from fedhpc.tensors.vector import ParameterVector

DISCRIMINATOR = "discriminator"

_BETA_2 = 0.9


class Adversarial(DomainObjective):
    """Discriminator and model take turns: `d_steps_per_g_step` steps of the one, then one of the other.

    The discriminator minimises A = its cross-entropy plus `grad_penalty` times the mean squared gradient with respect
    to its input; the model minimises cross-entropy - `lambda`·A. In profile `paper` the gradient is that of another
    quantity, as the published tables were made (`_penalised`).

    Attributes:
        discriminator: features to environments.
        class_embeddings: one vector per class, added to the features where the subclass wants it.
    """

    space: ClassVar[Mapping[str, HParam]] = {
        "lambda": HParam(1.0, PowerOf(10, -2, 2)),
        "lr_g": LEARNING_RATE,
        "lr_d": LEARNING_RATE,
        "weight_decay_g": WEIGHT_DECAY,
        "weight_decay_d": HParam(0.0, PowerOf(10, -6, -2)),
        "d_steps_per_g_step": HParam(1, PowerOf(2, 0, 3, integer=True)),
        "grad_penalty": HParam(0.0, PowerOf(10, -2, 1)),
        "beta1": HParam(0.5, Choice((0.0, 0.5))),
        "mlp_width": HParam(256, PowerOf(2, 6, 10, integer=True)),
        "mlp_depth": HParam(3, Choice((3, 4, 5))),
        "mlp_dropout": DROPOUT,
    }
    erm_without = "lambda"

    def __init__(self, model: nn.Module, vector: ParameterVector, setting: Setting | None = None) -> None:
        super().__init__(model, vector, setting)
        features, classes = _sizes(model)
        self._classes = classes
        hidden = (int(self.number("mlp_width")),) * (max(int(self.number("mlp_depth")), 2) - 1)
        widths = (features, *hidden, self.setting.num_environments)
        self.discriminator = Perceptron(widths, self.number("mlp_dropout")).to(vector.weights)
        self.class_embeddings = nn.Embedding(classes, features).to(vector.weights)

    @classmethod
    def remarks(cls, setting: Setting) -> list[str]:
        """See `DomainObjective.remarks`."""
        found = super().remarks(setting)
        if setting.profile == "paper" and cls.hparam(setting, "grad_penalty"):
            found.append(f"{cls.name()}: grad_penalty acts only on minibatches of unequal size in profile paper")
        return found

    @abstractmethod
    def inputs(self, features: Tensor, labels: Tensor) -> Tensor:
        """What the discriminator sees of features [n, num_features] with class labels [n]."""

    @abstractmethod
    def weigh(self, losses: Tensor, labels: Tensor) -> Tensor:
        """One number from the discriminator's losses [n] of samples with class labels [n]."""

    def optimizers(self) -> dict[str, OptimizerGroup]:
        """See `Objective.optimizers`."""
        parameters = [*self.discriminator.parameters(), *self.class_embeddings.parameters()]
        return {DISCRIMINATOR: OptimizerGroup(parameters, self._adam("d"))}

    def main_optimizer(self) -> OptimizerFactory:
        """The model's optimizer: Adam with `lr_g`, `weight_decay_g` and `beta1`."""
        return self._adam("g")

    def backward(self, minibatches: list[Batch]) -> StepReport:
        """See `Objective.backward`; the report says which of the two takes the step."""
        self.step += 1
        turns = int(self.number("d_steps_per_g_step"))
        if self.step % (1 + turns) < turns:
            return self._discriminator_step(minibatches)
        return self._model_step(minibatches)

    def _discriminator_step(self, minibatches: list[Batch]) -> StepReport:
        x, y = together(minibatches)
        with torch.no_grad():
            features = self.embed(x)
        loss = self._discrimination(features.requires_grad_(), y, minibatches)
        parameters = list(self.optimizers()[DISCRIMINATOR].parameters)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        return StepReport(loss.detach(), {"disc_loss": loss.detach()}, steps=(DISCRIMINATOR,))

    def _model_step(self, minibatches: list[Batch]) -> StepReport:
        x, y = together(minibatches)
        features = self.embed(x)
        adversary = self._discrimination(features, y, minibatches)
        loss = functional.cross_entropy(self.classify(features), y) - self.number("lambda") * adversary
        self.vector.write_grads(list(torch.autograd.grad(loss, self.vector.parameters, allow_unused=True)))
        return StepReport(loss.detach(), {"gen_loss": loss.detach()}, steps=(MAIN,))

    def _discrimination(self, features: Tensor, labels: Tensor, minibatches: list[Batch]) -> Tensor:
        """A of the class docstring."""
        seen = self.inputs(features, labels)
        scores = self.discriminator(seen)
        counts = torch.tensor([len(b) for b in minibatches], device=scores.device)
        here = torch.tensor(self.environments(minibatches), device=scores.device)
        losses = functional.cross_entropy(scores, here.repeat_interleave(counts), reduction="none")
        loss = self.weigh(losses, labels)
        factor = self.number("grad_penalty")
        if not factor:
            return loss
        per_environment = torch.zeros(scores.shape[1], device=scores.device, dtype=scores.dtype)
        per_environment.index_add_(0, here, counts.to(scores.dtype))
        (gradient,) = torch.autograd.grad(self._penalised(losses, scores, per_environment), seen, create_graph=True)
        return loss + factor * gradient.square().sum(1).mean()

    def _penalised(self, losses: Tensor, scores: Tensor, per_environment: Tensor) -> Tensor:
        """The quantity whose gradient is penalised: the sum of the losses.

        Profile `paper`: Σ_r Σ_c N_c·p_rc with N_c samples of environment c, which is constant, and its gradient 0,
        where all N_c are equal.
        """
        if self.setting.profile == "paper":
            return (scores.softmax(1) * per_environment).sum()
        return losses.sum()

    def _adam(self, part: str) -> OptimizerFactory:
        return partial(
            light(torch.optim.Adam),
            lr=self.number(f"lr_{part}"),
            weight_decay=self.number(f"weight_decay_{part}"),
            betas=(self.number("beta1"), _BETA_2),
        )


def _sizes(model: nn.Module) -> tuple[int, int]:
    """Number of features and of classes."""
    layers = [m for m in model.classifier.modules() if isinstance(m, nn.Linear)]  # type: ignore[union-attr]
    return layers[0].in_features, layers[-1].out_features
