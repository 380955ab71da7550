"""The plain types around the round loop: its settings, what it has come to, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from fedhpc.federated.client_state import ClientStateStore
from fedhpc.federated.host import SumSettings
from fedhpc.federated.placement import CostTable
from fedhpc.federated.server import EvaluatedModel, Server


@dataclass(frozen=True)
class EngineSettings:
    """How the loop runs.

    Attributes:
        rounds: the cap.
        evaluate_every: rounds between evaluations; the last round is always evaluated.
        evaluated_model: which of the server's models is evaluated.
        target: mean client accuracy whose first crossing is noted, or None.
        stop_at_target: end there; else go on to the cap.
        evaluate_batch: samples per evaluation batch.
        on_divergence: `skip` a client whose result cannot be used, or `stop`.
        checkpoint_every: rounds between checkpoints, 0 for none but on request.
        root_hosts: whether rank 0 trains clients as well.
        balanced: whether each cohort is spread anew over the ranks.
        sums: how contributions are added.
        state_budget: bytes of memory per rank for client state; more goes to node-local disk.
        follow_all: keep avg_all also where it is not what is evaluated (one more vector up, and one per client).
    """

    rounds: int
    evaluate_every: int = 1
    evaluated_model: EvaluatedModel = "broadcast_next"
    target: float | None = None
    stop_at_target: bool = True
    evaluate_batch: int = 256
    on_divergence: Literal["skip", "stop"] = "skip"
    checkpoint_every: int = 0
    root_hosts: bool = True
    balanced: bool = True
    sums: SumSettings = field(default_factory=SumSettings)
    state_budget: float = float("inf")
    follow_all: bool = False


@dataclass
class Progress:
    """What a run has come to; saved with every checkpoint.

    Attributes:
        round: rounds done.
        seconds_train: clock of the rounds (broadcast to update), what time to accuracy counts.
        seconds_evaluate: clock of the evaluations.
        reached: round and training seconds of the first evaluation at or above the target.
        accuracy: mean client accuracy of the last evaluation.
        evaluated: rounds done at the last evaluation.
    """

    round: int = 0
    seconds_train: float = 0.0
    seconds_evaluate: float = 0.0
    reached: tuple[int, float] | None = None
    accuracy: float | None = None
    evaluated: int | None = None


@dataclass(frozen=True)
class Snapshot:
    """All state that must survive, at a round border; `server` is None on ranks other than root."""

    progress: Progress
    server: Server | None
    states: ClientStateStore
    costs: CostTable


class Saver(Protocol):
    """Writes checkpoints; called on every rank."""

    def save(self, snapshot: Snapshot) -> None:
        """Save at a round border; collective."""


@dataclass(frozen=True)
class Outcome:
    """How the loop ended: `finished` (cap or target) or `stopped` early at a clean point."""

    status: Literal["finished", "stopped"]
    progress: Progress
