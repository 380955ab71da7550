"""FedAdam: Adam on the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedhpc.federated.algorithms._fedopt import AdaptiveServer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedAdam(AdaptiveServer):
    """v⁺ = β₂·v + (1 - β₂)·Δ² (Reddi et al., 2021, Algorithm 2)."""

    def second_moment(self, moment: Tensor, square: Tensor) -> None:
        """See `AdaptiveServer`."""
        moment.mul_(self.beta2).add_(square, alpha=1 - self.beta2)


ALGORITHM = FedAdam
