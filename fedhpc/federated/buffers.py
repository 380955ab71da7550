"""The two flat buffers of a round: one goes down with the broadcast, one comes up with the reduction.

Small things ride in the tail of the same buffer: the server's order to go on or stop and the last round's seconds on
the way down; who was accepted, seconds, losses and integer buffers on the way up.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

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


class Flat:
    """Named parts of one contiguous tensor."""

    def __init__(self, sizes: Mapping[str, int], dtype: torch.dtype) -> None:
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

    def __init__(
        self,
        names: tuple[str, ...],
        num_weights: int,
        num_buffers: int,
        num_counters: int,
        cohort: int,
        dtype: torch.dtype,
    ) -> None:
        self.names = names
        sizes = dict.fromkeys(names, num_weights)
        super().__init__(
            {**sizes, "buffers": num_buffers, "order": 1, "seconds": cohort, "counters": num_counters}, dtype
        )

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

    def __init__(
        self,
        names: tuple[str, ...],
        num_weights: int,
        num_buffers: int,
        num_counters: int,
        cohort: int,
        dtype: torch.dtype,
    ) -> None:
        self.names = names
        self.width = self.FIXED + num_counters
        sizes = dict.fromkeys(names, num_weights)
        super().__init__({**sizes, "buffers": num_buffers, "rows": cohort * self.width, "signal": 1}, dtype)

    @property
    def rows(self) -> Tensor:
        """[cohort, width] the tail's rows."""
        return self["rows"].view(-1, self.width)

    def clear(self) -> None:
        """Zero the buffer for a new round; a rank without clients adds exact zeros."""
        self.data.zero_()
