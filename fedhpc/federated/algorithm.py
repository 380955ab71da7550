"""What a federated algorithm is: vectors that travel, a rule for the client and a rule for the server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from fedhpc.train.local import LocalTraining

Vectors = dict[str, "Tensor"]
"""Model-sized vectors by name."""

Weighting = Literal["uniform", "samples"]
"""How contributions are weighted: equally, or by the client's number of training samples."""


@dataclass(frozen=True)
class Traffic:
    """What travels, declared; the engine sizes and fuses the buffers from it.

    Attributes:
        broadcast: server vectors clients need; `weights` is always the first.
        summed: vectors `client_update` returns for the weighted mean; `delta` = y_i - x is always among them.
        client_state: vectors that stay with the client for the whole run; zero at first.
    """

    broadcast: tuple[str, ...] = ("weights",)
    summed: Mapping[str, Weighting] = field(default_factory=lambda: {"delta": "uniform"})
    client_state: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cohort:
    """The clients of one round as the server sees them after the reduction.

    Attributes:
        round: rounds done before this one.
        clients: who was asked, in ascending order.
        accepted: whose contribution counts (the others diverged and were skipped).
        num_clients: N, all clients of the federation.
        steps: local steps each accepted client took.
        shares: per weighting, each accepted client's share of the mean; they add up to 1.
    """

    round: int
    clients: tuple[int, ...]
    accepted: tuple[int, ...]
    num_clients: int
    steps: tuple[int, ...] = ()
    shares: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


class FederatedAlgorithm(ABC):
    """A federated rule. Implementations are frozen dataclasses whose fields are the hyperparameters.

    No loop, no communication, no input or output, and no state in the object: what must survive a round is a
    server vector or declared client state, so that a checkpoint has it.

    Example:
        A rule that adds the plain mean of the clients' changes::

            @dataclass(frozen=True)
            class Mean(FederatedAlgorithm):
                def client_update(self, server, client, local):
                    return {"delta": local.train() - server["weights"]}

                def server_update(self, state, totals, cohort):
                    state["weights"] += totals["delta"]
    """

    elementwise: ClassVar[bool] = True
    """Whether `server_update` treats every element alike, so that it may be given blocks of the vectors in turn."""

    @property
    def takes_full_gradient(self) -> bool:
        """Whether the client rule asks for the gradient on all local samples, which only plain objectives have."""
        return False

    @property
    def traffic(self) -> Traffic:
        """What travels each round."""
        return Traffic()

    @property
    def means(self) -> Mapping[str, tuple[str, Weighting]]:
        """Server vectors that are the mean of a client vector over all clients, and how that is weighted.

        The rule keeps them up by itself; they are formed anew where clients lost their state with their rank.
        """
        return {}

    def check_local(self, optimizer: str, momentum: float) -> None:  # noqa: B027 - most rules work with any
        """Raise ConfigError for a local optimizer the rule cannot work with."""

    def remarks(self, clip: float | None) -> list[str]:
        """What a user should know of local settings that the rule allows but does not go well with; one line each."""
        return []

    def init(self, weights: Tensor) -> Vectors:
        """Server vectors beside `weights` before the first round; zero for every other broadcast vector."""
        return {name: weights.new_zeros(weights.shape) for name in self.traffic.broadcast if name != "weights"}

    @abstractmethod
    def client_update(self, server: Vectors, client: Vectors, local: LocalTraining) -> Vectors:
        """Train one client and return its contribution.

        Args:
            server: the broadcast vectors; read only.
            client: this client's state; read only (a client that diverges must keep its old state).
            local: runs the local steps from `server["weights"]`.

        Returns:
            Every vector of `traffic.summed`, unscaled, and the new value of every vector of `traffic.client_state`.
        """

    @abstractmethod
    def server_update(self, state: Vectors, totals: Vectors, cohort: Cohort) -> None:
        """Turn the round's weighted means into the next server state, in place.

        Args:
            state: server vectors in float64, `weights` among them.
            totals: weighted mean over the accepted clients of every summed vector, in float64; read only.
            cohort: who took part.
        """
