"""The two forms in which samples reach training: raw in memory, and as model input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Samples:
    """Raw samples of one client, or of one part of it.

    Attributes:
        x: uint8 pixels [n, H, W, C] as they lie in the shards, or floating-point model input [n, ...].
        y: int64 [n], class indices.
    """

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def at(self, positions: Tensor) -> Samples:
        """Return the samples at the int64 positions, on the device where they lie."""
        return Samples(self.x[positions], self.y[positions])


@dataclass(frozen=True, eq=False)
class Batch:
    """One minibatch as a model takes it.

    Attributes:
        x: floating point [B, C, H, W] (channels_last in memory for images).
        y: int64 [B], class indices.
        environment: index of the environment that all of it comes from, where that matters; None: its position in
            the list of the step's minibatches.
    """

    x: Tensor
    y: Tensor
    environment: int | None = None

    def __len__(self) -> int:
        return len(self.y)
