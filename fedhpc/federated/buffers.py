"""The two flat buffers of a round: one goes down with the broadcast, one comes up with the reduction.

Small things ride in the tail of the same buffer: the server's order to go on or stop and the last round's seconds on
the way down; who was accepted, seconds, losses and integer buffers on the way up.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor


class Order(IntEnum):
    """What the server tells all ranks with a broadcast."""

    GO = 0
    STOP = 1
    FAIL = 2


class Verdict(IntEnum):
    """What became of a client's contribution."""

    MISSING = 0
    ACCEPTED = 1
    NOT_FINITE = 2
    OUTSIDE_GRID = 3
    STATISTICS = 4


class Sizes(NamedTuple):
    """Elements of a model's weights, of its floating-point and of its integer buffers, and clients of a cohort."""

    weights: int
    buffers: int
    counters: int
    cohort: int


class Flat:
    """Model-sized vectors `names` and the smaller parts of `tail`, by name, in one contiguous tensor."""

    def __init__(self, names: tuple[str, ...], num_weights: int, tail: Mapping[str, int], dtype: torch.dtype) -> None:
        self.names = names
        sizes = {**dict.fromkeys(names, num_weights), **tail}
        self.data = torch.zeros(sum(sizes.values()), dtype=dtype)
        self._parts: dict[str, Tensor] = {}
        start = 0
        for name, size in sizes.items():
            self._parts[name] = self.data[start : start + size]
            start += size

    def __getitem__(self, name: str) -> Tensor:
        return self._parts[name]


class Down(Flat):
    """Root to all: broadcast vectors, buffers, and the tail (order, cohort seconds, integer buffers)."""

    def __init__(self, names: tuple[str, ...], sizes: Sizes, dtype: torch.dtype) -> None:
        tail = {"buffers": sizes.buffers, "order": 1, "seconds": sizes.cohort, "counters": sizes.counters}
        super().__init__(names, sizes.weights, tail, dtype)

    @property
    def order(self) -> Order:
        """The server's order."""
        return Order(int(self["order"][0]))

    @order.setter
    def order(self, value: Order) -> None:
        self["order"][0] = float(value)

    def vectors(self, device: torch.device) -> dict[str, Tensor]:
        """The broadcast vectors on a device (views of the buffer on the CPU)."""
        return {name: self[name].to(device) for name in self.names}


class Up(Flat):
    """All to root: summed vectors, buffers, and one row per cohort position in the tail.

    A row is written by the rank that trained the client and is zero elsewhere, so that the sum is the row.
    """

    SAMPLES, UNIFORM, VERDICT, SECONDS, LOSS, STEPS, FIXED = range(7)

    def __init__(self, names: tuple[str, ...], sizes: Sizes, dtype: torch.dtype) -> None:
        self.width = self.FIXED + sizes.counters
        tail = {"buffers": sizes.buffers, "rows": sizes.cohort * self.width, "signal": 1}
        super().__init__(names, sizes.weights, tail, dtype)

    @property
    def rows(self) -> Tensor:
        """[cohort, width] the tail's rows."""
        return self["rows"].view(-1, self.width)

    def clear(self) -> None:
        """Zero the buffer for a new round; a rank without clients adds exact zeros."""
        self.data.zero_()
