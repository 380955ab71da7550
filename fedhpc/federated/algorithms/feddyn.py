"""FedDyn: a dynamic regulariser that makes the clients' optima agree with the global one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fedhpc.errors import ConfigError
from fedhpc.federated.algorithm import Cohort, FederatedAlgorithm, Traffic, Vectors, Weighting
from fedhpc.train.correction import Correction

if TYPE_CHECKING:
    from torch import Tensor

    from fedhpc.train.local import LocalTraining


@dataclass(frozen=True)
class FedDyn(FederatedAlgorithm):
    """Local objective f_i(y) - <λ_i, y> + (α/2)·‖y - x‖² (Acar et al., 2021, Algorithm 1).

    Clients keep their drift sum d_i (λ_i = -α·d_i), the server keeps the mean of all d_i (h = -α·mean d_i):
    d_i⁺ = d_i + (y_i - x), x⁺ = mean of the y_i + mean of all d_i. Nothing is scaled by α before it is summed, so the
    grid of exact sums costs no accuracy at small α.

    Attributes:
        alpha: α, above 0: α → 0 is not FedAvg, because the server still adds the mean drift.
        profile: `canonical` (the paper) and `pfl-repo` are the same rule; `feddyn-repo` divides α by the client's
            relative size w_i and applies α·y outside the clip, as the authors' first code does.
    """

    alpha: float = 0.01
    profile: Literal["canonical", "pfl-repo", "feddyn-repo"] = "canonical"

    def __post_init__(self) -> None:
        if not self.alpha > 0:
            raise ConfigError(
                f"algorithm.alpha must be above 0, got {self.alpha}: FedDyn at 0 is not FedAvg (the server still adds "
                "the mean drift); use algorithm.name: fedavg"
            )

    @property
    def traffic(self) -> Traffic:
        """Weights down, their change up; drift sums stay at home."""
        return Traffic(client_state=("drift",))

    @property
    def means(self) -> Mapping[str, tuple[str, Weighting]]:
        """The server's is that of all drift sums."""
        return {"mean_drift": ("drift", "uniform")}

    def init(self, weights: Tensor) -> Vectors:
        """Mean of all drift sums, zero."""
        return {"mean_drift": weights.new_zeros(weights.shape)}

    def client_update(self, server: Vectors, client: Vectors, local: LocalTraining) -> Vectors:
        """See `FederatedAlgorithm.client_update`."""
        x, drift = server["weights"], client["drift"]
        if self.profile == "feddyn-repo":
            alpha = self.alpha / local.relative_size
            correction = Correction(linear=(drift - x) * alpha, decay=alpha)
        else:
            correction = Correction(linear=drift * self.alpha, pull=self.alpha, anchor=x)
        delta = local.train(correction) - x
        return {"delta": delta, "drift": drift + delta}

    def server_update(self, state: Vectors, totals: Vectors, cohort: Cohort) -> None:
        """See `FederatedAlgorithm.server_update`."""
        state["mean_drift"].add_(totals["delta"], alpha=len(cohort.accepted) / cohort.num_clients)
        state["weights"].add_(totals["delta"]).add_(state["mean_drift"])


ALGORITHM = FedDyn
