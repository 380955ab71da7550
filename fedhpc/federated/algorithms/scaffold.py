"""SCAFFOLD: control variates that take the client drift out of each local step."""

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
class Scaffold(FederatedAlgorithm):
    """Local step g + c - c_i with control variates c, c_i (Karimireddy et al., 2020, Algorithm 1).

    Option 2: c_i⁺ = c_i - c + (x - y_i)/(K_i·η_t), K_i the steps actually taken and η_t this round's learning rate.
    Option 1: c_i⁺ = ∇f_i(x) on all local data, with weight decay. c⁺ = c + (1/N)·ΣΔc_i over the participants.

    Attributes:
        server_lr: η_g of x⁺ = x + η_g·mean(y_i - x).
        option: 1 or 2.
        profile: `canonical` (the paper); `pfl-repo` divides by the undecayed η_0; `feddyn-repo` does that too, corrects
            with c/w_i and weights Δc_i by w_i (relative sizes), as the authors of FedDyn do.
        control_steps: a common K for option 2 in place of the steps taken; only with a `-repo` profile.
    """

    server_lr: float = 1.0
    option: Literal[1, 2] = 2
    profile: Literal["canonical", "pfl-repo", "feddyn-repo"] = "canonical"
    control_steps: int | None = None

    def __post_init__(self) -> None:
        if not self.server_lr > 0:
            raise ConfigError(f"algorithm.server_lr must be above 0, got {self.server_lr}")
        if self.control_steps is not None and self.profile == "canonical":
            raise ConfigError("algorithm.control_steps needs a -repo profile: the paper divides by the steps taken")
        if self.control_steps is not None and self.control_steps < 1:
            raise ConfigError(f"algorithm.control_steps must be at least 1, got {self.control_steps}")

    @property
    def takes_full_gradient(self) -> bool:
        """Option 1 does."""
        return self.option == 1

    def check_local(self, optimizer: str, momentum: float) -> None:
        """Refuse optimizers whose displacement is not K·η·(mean gradient): option 2 reads the gradient off it.

        Raises:
            ConfigError: option 2 with momentum or an adaptive optimizer.
        """
        if self.option == 2 and (optimizer != "sgd" or momentum):
            used = f"local.momentum {momentum}" if optimizer == "sgd" else f"local.optimizer {optimizer}"
            raise ConfigError(
                f"algorithm.option 2 of scaffold takes the gradient from the plain SGD displacement, which {used} "
                "falsifies; use algorithm.option: 1, or sgd without momentum"
            )

    def remarks(self, clip: float | None) -> list[str]:
        """Clipping is allowed, as the authors of FedDyn do it."""
        if clip is None or self.option == 1:
            return []
        return ["local.clip biases the controls of scaffold where it acts: option 2 reads gradients off the steps"]

    @property
    def traffic(self) -> Traffic:
        """Weights and the server's control down, both changes up; a client's control stays at home."""
        return Traffic(("weights", "control"), {"delta": "uniform", "control_delta": "uniform"}, ("control",))

    @property
    def means(self) -> Mapping[str, tuple[str, Weighting]]:
        """c is the mean of all c_i."""
        return {"control": ("control", "samples" if self.profile == "feddyn-repo" else "uniform")}

    def client_update(self, server: Vectors, client: Vectors, local: LocalTraining) -> Vectors:
        """See `FederatedAlgorithm.client_update`."""
        x, c, own = server["weights"], server["control"], client["control"]
        repo = self.profile == "feddyn-repo"
        gradient = local.full_gradient() if self.option == 1 else None
        delta = local.train(Correction(linear=(c / local.relative_size if repo else c) - own)) - x
        new = self._control(own, c, delta, local) if gradient is None else gradient
        return {"delta": delta, "control_delta": (new - own) * (local.relative_size if repo else 1.0), "control": new}

    def _control(self, own: Tensor, c: Tensor, delta: Tensor, local: LocalTraining) -> Tensor:
        """Option 2; a client that found no usable sample took no step and learned nothing about its gradient."""
        if local.num_steps == 0:
            return own
        steps = self.control_steps or local.num_steps
        lr = local.lr if self.profile == "canonical" else local.first_lr
        return own - c - delta / (steps * lr)

    def server_update(self, state: Vectors, totals: Vectors, cohort: Cohort) -> None:
        """See `FederatedAlgorithm.server_update`."""
        state["weights"].add_(totals["delta"], alpha=self.server_lr)
        state["control"].add_(totals["control_delta"], alpha=len(cohort.accepted) / cohort.num_clients)


ALGORITHM = Scaffold
