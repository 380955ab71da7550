"""MLDG: a step on some environments should also help on others; first order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from fedhpc.data.samples import Batch
from fedhpc.objectives._domains import DomainObjective, ring
from fedhpc.objectives.base import StepReport
from fedhpc.objectives.hparams import Choice, HParam, PowerOf
from fedhpc.objectives.setting import Setting

_ADAM_EPSILON = 1e-8

Weights = dict[str, Tensor]
Gradients = list[Tensor | None]


def split_pairs(order: list[int], num_test: int) -> list[tuple[int, int]]:
    """Pair each meta-train environment with one of the last `num_test` of the order, in turn; none if all are test."""
    cut = max(0, len(order) - num_test)
    train, test = order[:cut], order[cut:]
    return [(i, test[m % len(test)]) for m, i in enumerate(train)]


class Mldg(DomainObjective):
    """Gradient Σ (∇L_i(θ) + β·∇L_j(θ'))/D, θ' = θ after one fresh Adam step on L_i (Li et al., 2018, first order).

    Everything inner happens on copies of weights and buffers. Profile `paper` pairs environments in a random ring;
    `head` holds `n_meta_test` of them out, and trains nothing where no environment is left for meta-training.
    """

    space: ClassVar[Mapping[str, HParam]] = {
        "mldg_beta": HParam(1.0, PowerOf(10, -1, 1)),
        "n_meta_test": HParam(2, Choice((1, 2))),
    }
    needs_two_environments = False

    @classmethod
    def remarks(cls, setting: Setting) -> list[str]:
        """See `DomainObjective.remarks`."""
        environments, held_out = setting.num_environments, int(cls.hparam(setting, "n_meta_test"))
        if setting.profile == "paper":
            return ["mldg with one training environment tests on what it trained on"] if environments == 1 else []
        if environments <= held_out:
            return [f"mldg trains nothing: {environments} training environments, n_meta_test {held_out}"]
        return []

    def backward(self, minibatches: list[Batch]) -> StepReport:
        """See `Objective.backward`."""
        order, beta = self.setting.draws.permutation(self.step, len(minibatches)), self.number("mldg_beta")
        pairs = ring(order) if self.setting.profile == "paper" else split_pairs(order, int(self.number("n_meta_test")))
        total = [torch.zeros_like(p) for p in self.vector.parameters]
        loss = torch.zeros_like(self.vector.weights[0])
        for i, j in pairs:
            inner_loss, inner, outer_loss, outer = self._pair(minibatches[i], minibatches[j])
            loss = loss + inner_loss + beta * outer_loss
            for sum_, g_i, g_j in zip(total, inner, outer, strict=True):
                if g_i is not None:
                    sum_ += g_i / len(minibatches)
                if g_j is not None:
                    sum_ += beta * g_j / len(minibatches)
        self.vector.write_grads(list(total))
        self.step += 1
        loss = loss / len(minibatches)
        return StepReport(loss, {"loss": loss})

    def _pair(self, train: Batch, test: Batch) -> tuple[Tensor, Gradients, Tensor, Gradients]:
        """Losses and gradients on both members, rows cut to the shorter."""
        n = min(len(train), len(test))
        buffers = {name: b.clone() for name, b in self.model.named_buffers()}
        names = [slot.name for slot in self.vector.layout]
        weights = {name: p.detach().requires_grad_() for name, p in zip(names, self.vector.parameters, strict=True)}
        inner_loss, inner = self._gradients(weights, buffers, train.x[:n], train.y[:n])
        stepped = {name: self._step_of(w, g) for (name, w), g in zip(weights.items(), inner, strict=True)}
        outer_loss, outer = self._gradients(stepped, buffers, test.x[:n], test.y[:n])
        return inner_loss, inner, outer_loss, outer

    def _gradients(self, weights: Weights, buffers: Weights, x: Tensor, y: Tensor) -> tuple[Tensor, Gradients]:
        loss = functional.cross_entropy(functional_call(self.model, {**weights, **buffers}, (x,)), y)
        return loss.detach(), list(torch.autograd.grad(loss, list(weights.values()), allow_unused=True))

    def _step_of(self, weight: Tensor, gradient: Tensor | None) -> Tensor:
        """The first step of Adam: both moments' corrections cancel, so it is lr·g/(|g| + ε)."""
        start = weight.detach()
        if gradient is not None:
            g = gradient + self.number("weight_decay") * start
            start = start - self.number("lr") * g / (g.abs() + _ADAM_EPSILON)
        return start.requires_grad_()


OBJECTIVE = Mldg
