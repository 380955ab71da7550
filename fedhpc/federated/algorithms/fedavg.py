"""FedAvg: average the clients' models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedhpc.errors import ConfigError
from fedhpc.federated.algorithm import Cohort, FederatedAlgorithm, Traffic, Vectors, Weighting

if TYPE_CHECKING:
    from fedhpc.train.local import LocalTraining


@dataclass(frozen=True)
class FedAvg(FederatedAlgorithm):
    """x⁺ = x + η_g·Σ a_i·(y_i - x) (McMahan et al., 2017, Algorithm 1; η_g = 1 there).

    Attributes:
        server_lr: η_g.
        weighting: a_i = n_i/Σn over the participants (`samples`), or the plain mean.
    """

    server_lr: float = 1.0
    weighting: Weighting = "samples"

    def __post_init__(self) -> None:
        if not self.server_lr > 0:
            raise ConfigError(f"algorithm.server_lr must be above 0, got {self.server_lr}")

    @property
    def traffic(self) -> Traffic:
        """Weights down, their change up."""
        return Traffic(summed={"delta": self.weighting})

    def client_update(self, server: Vectors, client: Vectors, local: LocalTraining) -> Vectors:
        """See `FederatedAlgorithm.client_update`."""
        return {"delta": local.train() - server["weights"]}

    def server_update(self, state: Vectors, totals: Vectors, cohort: Cohort) -> None:
        """See `FederatedAlgorithm.server_update`."""
        state["weights"].add_(totals["delta"], alpha=self.server_lr)


ALGORITHM = FedAvg
