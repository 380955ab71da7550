"""FedProx: FedAvg whose clients are pulled to the broadcast model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedhpc.errors import ConfigError
from fedhpc.federated.algorithm import Cohort, FederatedAlgorithm, Traffic, Vectors, Weighting
from fedhpc.train.correction import Correction

if TYPE_CHECKING:
    from fedhpc.train.local import LocalTraining


@dataclass(frozen=True)
class FedProx(FederatedAlgorithm):
    """Local objective f_i(y) + (μ/2)·‖y - x‖², squared norm over the whole vector (Li et al., 2020, eq. 2).

    The anchor x is the broadcast model for the whole round.

    Attributes:
        mu: μ; 0 is FedAvg.
        weighting: as in FedAvg.
    """

    mu: float = 1e-4
    weighting: Weighting = "samples"

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise ConfigError(f"algorithm.mu must be at least 0, got {self.mu}")

    @property
    def traffic(self) -> Traffic:
        """Weights down, their change up."""
        return Traffic(summed={"delta": self.weighting})

    def client_update(self, server: Vectors, client: Vectors, local: LocalTraining) -> Vectors:
        """See `FederatedAlgorithm.client_update`."""
        pull = Correction(pull=self.mu, anchor=server["weights"]) if self.mu else None
        return {"delta": local.train(pull) - server["weights"]}

    def server_update(self, state: Vectors, totals: Vectors, cohort: Cohort) -> None:
        """See `FederatedAlgorithm.server_update`."""
        state["weights"].add_(totals["delta"])


ALGORITHM = FedProx
