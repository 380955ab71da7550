"""LocalSolver: from gradients to a step; the only place that calls an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from fedhpc.data.samples import Batch
from fedhpc.objectives.base import Objective, StepReport
from fedhpc.tensors.vector import ParameterVector
from fedhpc.train.correction import Correction

OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]

_CLIP_EPSILON = 1e-6


class LocalSolver:
    """Takes local steps `y ← y - η·(clip(g + L) + λ·y + T)` (order of terms: spec of the update, section 1.1).

    Args:
        vector: the weights that move.
        objective: fills the gradients.
        make_optimizer: builds the optimizer over the trainable parameters; its weight decay is λ.
        clip: bound of the global L2 norm of gradient plus inner correction, or None.
    """

    def __init__(
        self, vector: ParameterVector, objective: Objective, make_optimizer: OptimizerFactory, clip: float | None = None
    ) -> None:
        self._vector = vector
        self._objective = objective
        self._optimizer = make_optimizer(vector.parameters)
        self._clip = clip
        self._scratch = torch.empty_like(vector.weights)

    def reset(self, lr: float) -> None:
        """Begin a new local training: the optimizer forgets momentum and moments, and takes this learning rate."""
        self._optimizer.state.clear()
        for group in self._optimizer.param_groups:
            group["lr"] = lr

    def step(self, minibatches: list[Batch], correction: Correction | None = None) -> StepReport:
        """One local step; returns what the objective reports (loss before the step)."""
        self._vector.zero_grads()
        report = self._objective.backward(minibatches)
        untouched = [] if correction else self._vector.untouched()
        if correction:
            self._add_inside(correction)
        if self._clip is not None:
            self._clip_(self._vector.grads)
        if correction and correction.decay:
            self._vector.grads.add_(self._vector.weights, alpha=correction.decay)
        self._vector.hide_grads(untouched)  # a parameter without gradient is skipped, not fed a zero
        self._optimizer.step()
        self._vector.show_grads(untouched)
        return report

    def _add_inside(self, correction: Correction) -> None:
        grads = self._vector.grads
        if correction.linear is not None:
            grads.add_(correction.linear)
        if correction.pull:
            assert correction.anchor is not None, "a proximal term needs its anchor"
            torch.sub(self._vector.weights, correction.anchor, out=self._scratch)
            grads.add_(self._scratch, alpha=correction.pull)

    def _clip_(self, values: Tensor) -> None:
        assert self._clip is not None
        norm = torch.linalg.vector_norm(values)
        values.mul_(torch.clamp(self._clip / (norm + _CLIP_EPSILON), max=1.0))
