"""Every client's accuracy on its own test samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from fedhpc.data.clients import ClientData
from fedhpc.federated.personalize import Personalizer
from fedhpc.train.evaluate import Counts, evaluate
from fedhpc.train.local import LocalTrainer

if TYPE_CHECKING:
    from fedhpc.federated.records import Sink
    from fedhpc.federated.state import Progress

_THRESHOLD_SLACK = 1e-12
"""0.8 computed as 0.7999999999999999 counts as reached."""


class Exam(Protocol):
    """What every evaluated model is asked beside its accuracy on the clients, shared out over the ranks."""

    def evaluate(self, trainer: LocalTrainer, share: int, shares: int) -> Any:
        """One of `shares` parts of the work, with the model in the trainer; returns something small."""

    def record(self, sink: Sink, progress: Progress, answers: Sequence[Any]) -> None:
        """Root: put the parts together and write them down."""


@runtime_checkable
class ClientExam(Protocol):
    """An exam of models that differ from client to client: each is asked at its client's home."""

    def evaluate_client(self, trainer: LocalTrainer, client: int) -> Any:
        """Ask one client's model, which is in the trainer; returns something small."""

    def record(self, sink: Sink, progress: Progress, answers: Sequence[Any]) -> None:
        """Root: write down the answers; one list of (client, answer) per rank."""


@runtime_checkable
class CoversClients(Protocol):
    """An exam whose answers hold the clients' own test samples as well, so that these are not predicted twice."""

    def client_counts(self, progress: Progress, answers: Sequence[Any]) -> list[tuple[int, Counts]]:
        """Root: what the answers say about every client's own test samples."""


@dataclass(frozen=True)
class AccuracySummary:
    """Figures over all clients with test samples; fractions.

    Attributes:
        clients: ids, ascending.
        accuracies: accuracy of each on its own test samples.
        mean: unweighted mean over clients.
        worst_decile: mean over the worst tenth of the clients (at least one).
        std: population standard deviation over clients.
        loss: cross-entropy per test sample, over all samples.
    """

    clients: tuple[int, ...]
    accuracies: tuple[float, ...]
    mean: float
    min: float
    max: float
    worst_decile: float
    std: float
    loss: float

    def reaches(self, target: float | None) -> bool:
        """Whether the mean is at least the target."""
        return target is not None and self.mean + _THRESHOLD_SLACK >= target


def evaluate_client(
    client: int, trainer: LocalTrainer, data: ClientData, batch_size: int, personalizer: Personalizer | None = None
) -> Counts:
    """Evaluate the model in the trainer on one client's test samples.

    Args:
        client: whose test samples.
        trainer: holds the model.
        data: holds the samples.
        batch_size: samples per batch.
        personalizer: adapts the model to the client's training samples.
    """
    predict = personalizer.predictor(trainer, data.train(client)) if personalizer else None
    return evaluate(trainer.objective, data.test(client), trainer.transform, batch_size, predict)


def summarize(counts: Sequence[tuple[int, Counts]]) -> AccuracySummary:
    """Combine the counts of all ranks; clients without test samples are left out, and without any all is NaN."""
    ordered = sorted(((c, n) for c, n in counts if n.total), key=lambda pair: pair[0])
    if not ordered:
        return AccuracySummary((), (), *[math.nan] * 6)
    accuracies = np.array([n.accuracy for _, n in ordered], dtype=np.float64)
    worst = np.sort(accuracies)[: max(1, len(accuracies) // 10)]
    loss = sum(n.loss for _, n in ordered) / sum(n.total for _, n in ordered)
    return AccuracySummary(
        tuple(c for c, _ in ordered),
        tuple(float(a) for a in accuracies),
        float(accuracies.mean()),
        float(accuracies.min()),
        float(accuracies.max()),
        float(worst.mean()),
        float(accuracies.std()),
        loss,
    )
