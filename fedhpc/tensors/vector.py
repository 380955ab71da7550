"""A module's weights, gradients and buffers as views of flat tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Slot:
    """Where one named tensor lies in a flat one: elements `start` to `stop`, row-major."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int


def _slots(named: list[tuple[str, Tensor]]) -> tuple[Slot, ...]:
    slots, start = [], 0
    for name, tensor in named:
        slots.append(Slot(name, tuple(tensor.shape), start, start + tensor.numel()))
        start += tensor.numel()
    return tuple(slots)


class ParameterVector:
    """The trainable parameters and the buffers of a module, flat; built once, after `.to(device)`.

    Parameters and their `.grad` become views of `weights` and `grads`, floating-point buffers views of `buffers`;
    so a flat copy moves a whole model. `optimizer.zero_grad()` or `.to()` afterwards would cut the views: use
    `zero_grads()`. Frozen parameters (`requires_grad=False`) are no part of it.

    Attributes:
        weights: [num_weights] trainable values, in `named_parameters()` order, each tensor row-major.
        grads: [num_weights] gradients, the same layout.
        buffers: [num_buffer_values] floating-point buffers (batch-norm statistics), kept apart.
        layout: one slot per trainable parameter.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        trainable = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        if not trainable:
            raise ValueError("the model has no trainable parameter")
        dtypes = {p.dtype for _, p in trainable}
        if len(dtypes) != 1 or not dtypes <= {torch.float32, torch.float64}:
            raise ValueError(f"trainable parameters must share float32 or float64, got {sorted(map(str, dtypes))}")
        self.parameters = [p for _, p in trainable]
        self.layout = _slots(list(trainable))
        self.weights = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        self.grads = torch.zeros_like(self.weights)
        self._grad_views = []
        self._touched = [False] * len(self.parameters)
        for index, (p, slot) in enumerate(zip(self.parameters, self.layout, strict=True)):
            p.data = self.weights[slot.start : slot.stop].view(slot.shape)
            self._grad_views.append(self.grads[slot.start : slot.stop].view(slot.shape))
            p.grad = self._grad_views[index]
            p.register_post_accumulate_grad_hook(self._marker(index))
        self._take_buffers(module)

    def _marker(self, index: int) -> Callable[[Tensor], None]:
        def mark(_: Tensor) -> None:
            self._touched[index] = True

        return mark

    def _take_buffers(self, module: nn.Module) -> None:
        """Make floating-point buffers views of one tensor; keep the integer ones as they are."""
        floating = [(n, b) for n, b in module.named_buffers() if b.is_floating_point()]
        self._counters = [b for _, b in module.named_buffers() if not b.is_floating_point()]
        self.buffer_layout = _slots(floating)
        values = [b.detach().reshape(-1).to(self.weights.dtype) for _, b in floating]
        self.buffers = torch.cat(values) if values else self.weights.new_empty(0)
        for slot in self.buffer_layout:
            owner, _, name = slot.name.rpartition(".")
            module.get_submodule(owner)._buffers[name] = self.buffers[slot.start : slot.stop].view(slot.shape)

    def __len__(self) -> int:
        return self.weights.numel()

    def zero_grads(self) -> None:
        """Clear gradients and the record of which parameters got one; call before each backward pass."""
        self.grads.zero_()
        self._touched = [False] * len(self.parameters)

    def write_grads(self, grads: list[Tensor | None]) -> None:
        """Store gradients computed by `torch.autograd.grad`, one per parameter; None marks no gradient."""
        for index, grad in enumerate(grads):
            if grad is not None:
                self._grad_views[index].copy_(grad)
                self._touched[index] = True

    def untouched(self) -> list[int]:
        """Indices into `layout` of the parameters that got no gradient since `zero_grads`."""
        return [i for i, touched in enumerate(self._touched) if not touched]

    def hide_grads(self, indices: list[int]) -> None:
        """Take `.grad` from some parameters, so that an optimizer leaves them alone."""
        for i in indices:
            self.parameters[i].grad = None

    def show_grads(self, indices: list[int]) -> None:
        """Give `.grad` back after `hide_grads`."""
        for i in indices:
            self.parameters[i].grad = self._grad_views[i]

    @property
    def num_counters(self) -> int:
        """How many numbers the integer buffers (batch-norm's step counters) hold together."""
        return sum(c.numel() for c in self._counters)

    def counters(self) -> Tensor:
        """The integer buffers as one float64 host tensor, exact up to 2^53."""
        flat = [c.detach().reshape(-1).to("cpu", torch.float64) for c in self._counters]
        return torch.cat(flat) if flat else torch.empty(0, dtype=torch.float64)

    def set_counters(self, values: Tensor) -> None:
        """Write the integer buffers from the form `counters` returns; their dtype stays."""
        start = 0
        for c in self._counters:
            c.copy_(values[start : start + c.numel()].view(c.shape))
            start += c.numel()


def sha256_float32(weights: Tensor) -> str:
    """SHA-256 of the weights as little-endian float32 bytes."""
    values = weights.detach().to("cpu", torch.float32).contiguous().numpy().astype("<f4", copy=False)
    return hashlib.sha256(values.tobytes()).hexdigest()
