"""MAML: minimise the query loss of the weights after inner steps on the support batch."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from fedhpc.data.samples import Batch
from fedhpc.objectives.base import Objective, StepReport
from fedhpc.tensors.vector import ParameterVector

Order = Literal["full", "first", "hessian_free"]


class Maml(Objective):
    """F(θ) = f(T(θ); query), T = J inner steps θ_{j+1} = θ_j - β·(∇f(θ_j; support) + λ·θ_j) (Finn et al., 2017).

    All inner steps use the same support batch; batch-norm statistics are frozen in them. The gradient is
    Π_j (I - β·(H_j + λ·I))·∇f(θ_J; query): exactly (`full`), without the Hessians (`first`), or with
    H_j·v ≈ (∇f(θ_j + δv) - ∇f(θ_j - δv))/(2δ) (`hessian_free`; Fallah et al., 2020, section 4).

    Args:
        model: the network.
        vector: its flat weights; the gradient goes to `vector.grads`.
        inner_lr: β.
        inner_steps: J; 0 gives the plain query gradient.
        order: how second derivatives are treated.
        delta: δ of `hessian_free`.
        weight_decay: λ inside the inner steps.
    """

    minibatches_per_step: ClassVar[int] = 2

    def __init__(
        self,
        model: nn.Module,
        vector: ParameterVector,
        inner_lr: float = 0.01,
        inner_steps: int = 1,
        order: Order = "full",
        delta: float = 1e-3,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(model, vector)
        self._beta, self._steps, self._order = inner_lr, inner_steps, order
        self._delta, self._decay = delta, weight_decay
        self._names = [slot.name for slot in vector.layout]
        self._norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]

    def backward(self, minibatches: list[Batch]) -> StepReport:
        """See `Objective.backward`; the minibatches are support and query."""
        support, query = minibatches
        start = [p.detach() for p in self.vector.parameters]
        if self._order == "full":
            start = [p.requires_grad_() for p in start]
        path = self._inner(start, support)
        leaf = path[-1] if self._order == "full" and self._steps else [p.detach().requires_grad_() for p in path[-1]]
        loss = self._loss(leaf, query)
        if self._order == "full":
            grads: list[Tensor | None] = list(
                torch.autograd.grad(loss, start if self._steps else leaf, allow_unused=True)
            )
        else:
            grads = list(torch.autograd.grad(loss, leaf, allow_unused=True))
        if self._order == "hessian_free":
            for weights in reversed(path[:-1]):
                grads = self._times_one_minus_beta_hessian(weights, grads, support)
        self.vector.write_grads(grads)
        return StepReport(loss.detach())

    def predict(self, x: Tensor) -> Tensor:
        """See `Objective.predict`."""
        scores: Tensor = self.model(x)
        return scores

    def _inner(self, weights: list[Tensor], support: Batch) -> list[list[Tensor]]:
        """The weights θ_0 ... θ_J."""
        path, modes = [weights], [m.training for m in self._norms]
        for norm in self._norms:
            norm.eval()
        for _ in range(self._steps):
            path.append(self._inner_step(path[-1], support))
        for norm, mode in zip(self._norms, modes, strict=True):
            norm.train(mode)
        return path

    def _inner_step(self, weights: list[Tensor], support: Batch) -> list[Tensor]:
        full = self._order == "full"
        if not full:
            weights = [w.detach().requires_grad_() for w in weights]
        grads = torch.autograd.grad(self._loss(weights, support), weights, create_graph=full, allow_unused=True)
        return [w if g is None else w - self._beta * (g + self._decay * w) for w, g in zip(weights, grads, strict=True)]

    def _times_one_minus_beta_hessian(
        self, weights: list[Tensor], grads: list[Tensor | None], support: Batch
    ) -> list[Tensor | None]:
        """(I - β·(H + λ·I))·v with a central difference of gradients."""

        def gradient(sign: float) -> list[Tensor | None]:
            shifted = [
                (w.detach() if v is None else w.detach() + sign * self._delta * v).requires_grad_()
                for w, v in zip(weights, grads, strict=True)
            ]
            return list(torch.autograd.grad(self._loss(shifted, support), shifted, allow_unused=True))

        modes = [m.training for m in self._norms]
        for norm in self._norms:
            norm.eval()
        pairs = zip(grads, gradient(1.0), gradient(-1.0), strict=True)
        result: list[Tensor | None] = []
        for v, plus, minus in pairs:
            if v is None or plus is None or minus is None:
                result.append(v)
            else:
                product = (plus - minus) / (2 * self._delta) + self._decay * v
                result.append(v - self._beta * product)
        for norm, mode in zip(self._norms, modes, strict=True):
            norm.train(mode)
        return result

    def _loss(self, weights: list[Tensor], batch: Batch) -> Tensor:
        scores = functional_call(self.model, dict(zip(self._names, weights, strict=True)), (batch.x,))
        return functional.cross_entropy(scores, batch.y)


OBJECTIVE = Maml
