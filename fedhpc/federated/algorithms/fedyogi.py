"""FedYogi: Yogi on the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedhpc.federated.algorithms._fedopt import AdaptiveServer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedYogi(AdaptiveServer):
    """v⁺ = v - (1 - β₂)·Δ²·sign(v - Δ²) (Reddi et al., 2021, Algorithm 2)."""

    def second_moment(self, moment: Tensor, square: Tensor) -> None:
        """See `AdaptiveServer`."""
        moment.sub_(square * (moment - square).sign(), alpha=1 - self.beta2)


ALGORITHM = FedYogi
