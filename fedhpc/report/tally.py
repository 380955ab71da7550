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


@dataclass(frozen=True)
class Collective:
    """What one node did in one kind of collective.

    Attributes:
        host: the node.
        collective: such as `broadcast`; `barrier` is where ranks wait for each other before the reduce.
        calls: sum over the node's ranks.
        bytes: payload that the node's ranks handed over, sum.
        seconds: mean over the node's ranks, waiting for others included.
        share: of the time that the loop of rounds took; None where that was not recorded.
    """

    host: str
    collective: str
    calls: int
    bytes: int
    seconds: float
    share: float | None


@dataclass
class Tally:
    """Running figures over the records of one run."""

    rounds: int | None = None
    seconds: float | None = None
    clients: set[int] = field(default_factory=set)
    sums: dict[str, tuple[float, int]] = field(default_factory=dict)
    figures: dict[str | None, dict[int, dict[str, float]]] = field(default_factory=dict)
    traffic: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    loops: dict[str, float] = field(default_factory=dict)
    reads: dict[str, float] = field(default_factory=dict)

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
        elif record.value is None:
            pass
        elif record.host is not None:
            self._add_traffic(record.host, record, record.value)
        else:
            total, count = self.sums.get(record.what, (0.0, 0))
            self.sums[record.what] = (total + record.value, count + 1)

    def _add_traffic(self, host: str, record: Record, value: float) -> None:
        if record.what == "loop_seconds":
            self.loops[host] = self.loops.get(host, 0.0) + value
        elif record.what == "read_seconds":
            self.reads[host] = self.reads.get(host, 0.0) + value
        elif record.collective is not None:
            found = self.traffic.setdefault((host, record.collective), {})
            found[record.what] = found.get(record.what, 0.0) + value

    def collectives(self) -> tuple[Collective, ...]:
        """What each node did in each kind of collective, by node, longest first."""
        rows = []
        for (host, name), found in self.traffic.items():
            calls, moved, spent = (found.get(f"collective_{what}", 0.0) for what in ("calls", "bytes", "seconds"))
            loop = self.loops.get(host)
            rows.append(Collective(host, name, int(calls), int(moved), spent, spent / loop if loop else None))
        return tuple(sorted(rows, key=lambda row: (row.host, -row.seconds, row.collective)))

    def read_share(self) -> float | None:
        """What reading samples took of the loop of rounds, on the node where that was most; None if not recorded."""
        shares = [read / self.loops[host] for host, read in self.reads.items() if self.loops.get(host)]
        return max(shares, default=None)

    def share(self, what: str, whole: str) -> float | None:
        """One quantity's total over another's, None if either was never recorded or the whole is 0."""
        part, total = self.total(what), self.total(whole)
        return part / total if part is not None and total else None

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
