"""What the adaptive server optimizers share (Reddi et al., 2021, Algorithm 2)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedhpc.errors import ConfigError
from fedhpc.federated.algorithm import Cohort, FederatedAlgorithm, Traffic, Vectors, Weighting

if TYPE_CHECKING:
    from torch import Tensor

    from fedhpc.train.local import LocalTraining


@dataclass(frozen=True)
class AdaptiveServer(FederatedAlgorithm):
    """m⁺ = β₁·m + (1 - β₁)·Δ, v⁺ by the subclass, x⁺ = x + η_g·m⁺/(√v⁺ + τ); Δ is the mean change, v starts at τ².

    The moments belong to the server alone; only trainable weights take this step, batch-norm statistics do not.

    Attributes:
        server_lr: η_g.
        beta1: β₁.
        beta2: β₂.
        tau: τ, how adaptive the step is.
        weighting: as in FedAvg.
    """

    server_lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    weighting: Weighting = "samples"

    def __post_init__(self) -> None:
        for name, value in (("server_lr", self.server_lr), ("tau", self.tau)):
            if not value > 0:
                raise ConfigError(f"algorithm.{name} must be above 0, got {value}")
        for name, value in (("beta1", self.beta1), ("beta2", self.beta2)):
            if not 0 <= value < 1:
                raise ConfigError(f"algorithm.{name} must be at least 0 and below 1, got {value}")

    @property
    def traffic(self) -> Traffic:
        """Weights down, their change up."""
        return Traffic(summed={"delta": self.weighting})

    def init(self, weights: Tensor) -> Vectors:
        """First moment 0, second τ²."""
        return {"first": weights.new_zeros(weights.shape), "second": weights.new_full(weights.shape, self.tau**2)}

    def client_update(self, server: Vectors, client: Vectors, local: LocalTraining) -> Vectors:
        """See `FederatedAlgorithm.client_update`."""
        return {"delta": local.train() - server["weights"]}

    def server_update(self, state: Vectors, totals: Vectors, cohort: Cohort) -> None:
        """See `FederatedAlgorithm.server_update`."""
        change = totals["delta"]
        state["first"].mul_(self.beta1).add_(change, alpha=1 - self.beta1)
        self.second_moment(state["second"], change.square())
        state["weights"].addcdiv_(state["first"], state["second"].sqrt().add_(self.tau), value=self.server_lr)

    @abstractmethod
    def second_moment(self, moment: Tensor, square: Tensor) -> None:
        """Update v in place from Δ²."""
