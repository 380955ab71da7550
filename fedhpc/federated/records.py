"""What the engine writes down about rounds and evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fedhpc.federated.evaluation import AccuracySummary
from fedhpc.federated.server import RoundSummary
from fedhpc.train.local import LocalTrainer

if TYPE_CHECKING:
    from fedhpc.federated.state import Progress


class Sink(Protocol):
    """Takes records on root; everything else about files is the sink's business."""

    def record(self, what: str, value: float, unit: str, round: int, seconds: float, **where: int | str) -> None:
        """One value; `seconds` is the training clock, `where` names client, model and the like."""

    def round_done(self, progress: Progress, summary: RoundSummary, times: RoundTimes) -> None:
        """A round is complete."""

    def evaluated(self, progress: Progress, summary: AccuracySummary) -> None:
        """An evaluation is complete."""


class NullSink:
    """Takes records and forgets them: the sink of every rank but root, and of warm-up rounds."""

    def record(self, what: str, value: float, unit: str, round: int, seconds: float, **where: int | str) -> None:
        """Ignore."""

    def round_done(self, progress: Progress, summary: RoundSummary, times: RoundTimes) -> None:
        """Ignore."""

    def evaluated(self, progress: Progress, summary: AccuracySummary) -> None:
        """Ignore."""


@dataclass(frozen=True)
class RoundTimes:
    """Seconds of one round on root's clock: the whole, waiting for other ranks, in the collectives."""

    total: float
    wait: float
    communicate: float


def record_round(
    sink: Sink,
    progress: Progress,
    summary: RoundSummary,
    ranks: Sequence[int],
    hosts: Sequence[int],
    times: RoundTimes,
    moved: int,
    models: int,
    trainer: LocalTrainer,
) -> None:
    """Write down one round.

    Args:
        sink: takes the records.
        progress: after this round.
        summary: what the clients returned.
        ranks: who trained which client of the cohort.
        hosts: all ranks that may train clients; one without a client waits the whole round.
        times: of the round.
        moved: root's bytes.
        models: model-sized vectors per upload.
        trainer: knows the learning rate.
    """
    loads = dict.fromkeys(hosts, 0.0)
    for rank, seconds in zip(ranks, summary.seconds, strict=True):
        loads[rank] += seconds
    longest, mean = max(loads.values()), sum(loads.values()) / len(loads)
    values: list[tuple[str, float, str]] = [
        ("train_loss", summary.loss, "nats"),
        ("round_seconds", times.total, "s"),
        ("wait_seconds", times.wait, "s"),
        ("communicate_seconds", times.communicate, "s"),
        ("imbalance", longest / mean if mean else 1.0, "ratio"),
        ("waiting_share", (longest - mean) / longest if longest else 0.0, "fraction"),
        ("bytes_moved", moved, "B"),
        ("models_transmitted", models * len(summary.cohort.clients), "models"),
        ("lr", trainer.settings.lr_of(summary.cohort.round), "1"),
        ("cohort_size", len(summary.cohort.accepted), "clients"),
    ]
    at = (progress.round, progress.seconds_train)
    for what, value, unit in values:
        sink.record(what, value, unit, *at)
    for client, seconds, rank in zip(summary.cohort.clients, summary.seconds, ranks, strict=True):
        sink.record("client_seconds", seconds, "s", *at, client=client, rank=rank)
    for client in summary.diverged:
        sink.record("diverged", 1, "clients", *at, client=client)
    sink.round_done(progress, summary, times)


def record_evaluation(sink: Sink, progress: Progress, summary: AccuracySummary, model: str, seconds: float) -> None:
    """Write down one evaluation: every client's accuracy, and the figures over clients."""
    at = (progress.round, progress.seconds_train)
    for client, accuracy in zip(summary.clients, summary.accuracies, strict=True):
        sink.record("client_accuracy", accuracy, "fraction", *at, client=client, model=model)
    for name in ("mean", "min", "max", "worst_decile", "std"):
        sink.record(f"client_accuracy_{name}", getattr(summary, name), "fraction", *at, model=model)
    sink.record("test_loss", summary.loss, "nats", *at, model=model)
    sink.record("evaluate_seconds", seconds, "s", *at)
    sink.evaluated(progress, summary)
