"""Running figures over the records of one run, in one pass and little memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedhpc.runs.records import Record

FIGURES = ("mean", "min", "max", "worst_decile", "std")
_PREFIX = "client_accuracy_"


@dataclass(frozen=True)
class Evaluation:
    """Accuracy over the clients at one moment; fractions, None where a figure was not recorded.

    Attributes:
        round: rounds done.
        seconds: the training clock.
        mean: unweighted mean over the clients' own test data; likewise min, max, worst_decile (mean of the worst
            tenth of the clients) and std.
    """

    round: int
    seconds: float
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    worst_decile: float | None = None
    std: float | None = None


@dataclass
class Tally:
    """Running figures over the records of one run."""

    rounds: int | None = None
    seconds: float | None = None
    clients: set[int] = field(default_factory=set)
    sums: dict[str, tuple[float, int]] = field(default_factory=dict)
    figures: dict[str | None, dict[int, dict[str, float]]] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Take one record in."""
        self.rounds = max(self.rounds or 0, record.round)
        self.seconds = max(self.seconds or 0.0, record.seconds)
        if record.what == "client_accuracy" and record.client is not None:
            self.clients.add(record.client)
        elif record.what.startswith(_PREFIX):
            moment = self.figures.setdefault(record.model, {}).setdefault(record.round, {})
            moment["seconds"] = record.seconds
            if record.value is not None:
                moment[record.what.removeprefix(_PREFIX)] = record.value
        elif record.value is not None:
            total, count = self.sums.get(record.what, (0.0, 0))
            self.sums[record.what] = (total + record.value, count + 1)

    def total(self, what: str) -> float | None:
        """Sum of a quantity, None if it was never recorded."""
        return self.sums[what][0] if what in self.sums else None

    def mean(self, what: str) -> float | None:
        """Mean of a quantity, None if it was never recorded."""
        total, count = self.sums.get(what, (0.0, 0))
        return total / count if count else None

    def evaluations(self, model: str | None) -> tuple[Evaluation, ...]:
        """The evaluations of one model, by round."""
        moments = sorted(self.figures.get(model, {}).items())
        return tuple(
            Evaluation(number, moment["seconds"], **{f: moment.get(f) for f in FIGURES}) for number, moment in moments
        )
