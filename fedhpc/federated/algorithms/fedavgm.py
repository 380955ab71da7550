"""FedAvgM: momentum on the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedhpc.errors import ConfigError
from fedhpc.federated.algorithm import Cohort, FederatedAlgorithm, Traffic, Vectors, Weighting

if TYPE_CHECKING:
    from torch import Tensor

    from fedhpc.train.local import LocalTraining


@dataclass(frozen=True)
class FedAvgM(FederatedAlgorithm):
    """m⁺ = β·m + Δ, x⁺ = x + η_g·m⁺, Δ the mean change (Hsu et al., 2019, section 4.3).

    Attributes:
        server_lr: η_g.
        momentum: β; 0 is FedAvg.
        weighting: as in FedAvg.
    """

    server_lr: float = 1.0
    momentum: float = 0.9
    weighting: Weighting = "samples"

    def __post_init__(self) -> None:
        if not self.server_lr > 0:
            raise ConfigError(f"algorithm.server_lr must be above 0, got {self.server_lr}")
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"algorithm.momentum must be at least 0 and below 1, got {self.momentum}")

    @property
    def traffic(self) -> Traffic:
        """Weights down, their change up."""
        return Traffic(summed={"delta": self.weighting})

    def init(self, weights: Tensor) -> Vectors:
        """No momentum yet."""
        return {"momentum": weights.new_zeros(weights.shape)}

    def client_update(self, server: Vectors, client: Vectors, local: LocalTraining) -> Vectors:
        """See `FederatedAlgorithm.client_update`."""
        return {"delta": local.train() - server["weights"]}

    def server_update(self, state: Vectors, totals: Vectors, cohort: Cohort) -> None:
        """See `FederatedAlgorithm.server_update`."""
        state["momentum"].mul_(self.momentum).add_(totals["delta"])
        state["weights"].add_(state["momentum"], alpha=self.server_lr)


ALGORITHM = FedAvgM
