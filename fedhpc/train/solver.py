"""LocalSolver: from gradients to a step; the only place that calls an optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedhpc.data.samples import Batch
from fedhpc.objectives.base import MAIN, Objective, OptimizerFactory, StepReport
from fedhpc.tensors.vector import ParameterVector
from fedhpc.train.correction import Correction

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
        groups = objective.optimizers()
        self._optimizers = {MAIN: self._optimizer, **{n: g.make(g.parameters) for n, g in groups.items()}}
        self._clip = clip
        self._frozen: list[int] = []
        self._scratch = torch.empty_like(vector.weights)

    def reset(self, lr: float) -> None:
        """Begin a new local training: optimizers and objective forget, and the model takes this learning rate."""
        self._objective.begin()
        for optimizer in self._optimizers.values():
            optimizer.state.clear()
        for group in self._optimizer.param_groups:
            group["lr"] = lr

    def freeze(self, indices: Sequence[int]) -> None:
        """From now on leave these parameters (indices into the layout) as they are, and move all others."""
        self._frozen = list(indices)
        for index, parameter in enumerate(self._vector.parameters):
            parameter.requires_grad_(index not in self._frozen)

    @property
    def frozen(self) -> tuple[slice, ...]:
        """Where the parameters that stay as they are lie in the flat vector."""
        slots = (self._vector.layout[index] for index in self._frozen)
        return tuple(slice(slot.start, slot.stop) for slot in slots)

    def forget(self) -> None:
        """Let the optimizers forget in the middle of a local training."""
        for optimizer in self._optimizers.values():
            optimizer.state.clear()

    def step(self, minibatches: list[Batch], correction: Correction | None = None) -> StepReport:
        """One local step; returns what the objective reports (loss before the step)."""
        self._vector.zero_grads()
        report = self._objective.backward(minibatches)
        if report.skip:
            return report
        for name in report.resets:
            self._optimizers[name].state.clear()
        for name in report.steps:
            if name == MAIN:
                self._step_model(correction)
            else:
                self._optimizers[name].step()
        return report

    def state(self) -> dict[str, Tensor]:
        """Return what the optimizers remember, for a checkpoint: `<optimizer>/<parameter>/<entry>`; not copied."""
        return {
            f"{name}/{index}/{entry}": value
            for name, optimizer in self._optimizers.items()
            for index, parameter in enumerate(_parameters(optimizer))
            for entry, value in optimizer.state.get(parameter, {}).items()
            if value is not None
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state` returned."""
        for optimizer in self._optimizers.values():
            optimizer.state.clear()
        for key, value in state.items():
            name, index, entry = key.split("/")
            optimizer = self._optimizers[name]
            optimizer.state[_parameters(optimizer)[int(index)]][entry] = value.clone()

    def _step_model(self, correction: Correction | None) -> None:
        untouched = self._frozen if correction else self._vector.untouched()
        if correction:
            self._add_inside(correction)
            for part in self.frozen:
                self._vector.grads[part] = 0
        if self._clip is not None:
            self._clip_(self._vector.grads)
        if correction and correction.decay:
            self._vector.grads.add_(self._vector.weights, alpha=correction.decay)
        self._vector.hide_grads(untouched)  # a parameter without gradient is skipped, not fed a zero
        self._optimizer.step()
        self._vector.show_grads(untouched)

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


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
