"""FedNova: clients that take more steps do not count for more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedhpc.errors import ConfigError
from fedhpc.federated.algorithm import Cohort, FederatedAlgorithm, Traffic, Vectors, Weighting

if TYPE_CHECKING:
    from fedhpc.train.local import LocalTraining


@dataclass(frozen=True)
class FedNova(FederatedAlgorithm):
    """x⁺ = x + τ_eff·Σ a_i·(y_i - x)/τ_i, τ_eff = Σ a_i·τ_i, τ_i the local steps (Wang et al., 2020, eq. 6, plain SGD).

    Attributes:
        weighting: a_i, as in FedAvg.
    """

    weighting: Weighting = "samples"

    def check_local(self, optimizer: str, momentum: float) -> None:
        """Refuse optimizers for which the number of steps is not the right normaliser."""
        if optimizer != "sgd" or momentum:
            raise ConfigError(
                "algorithm fednova divides by the number of plain SGD steps; use local.optimizer sgd without momentum"
            )

    @property
    def traffic(self) -> Traffic:
        """Weights down; their change, plain and per step, up."""
        return Traffic(summed={"delta": self.weighting, "per_step": self.weighting})

    def client_update(self, server: Vectors, client: Vectors, local: LocalTraining) -> Vectors:
        """See `FederatedAlgorithm.client_update`."""
        delta = local.train() - server["weights"]
        return {"delta": delta, "per_step": delta / max(1, local.num_steps)}

    def server_update(self, state: Vectors, totals: Vectors, cohort: Cohort) -> None:
        """See `FederatedAlgorithm.server_update`."""
        shares = cohort.shares[self.weighting]
        effective = sum(a * steps for a, steps in zip(shares, cohort.steps, strict=True))
        state["weights"].add_(totals["per_step"], alpha=effective)


ALGORITHM = FedNova
