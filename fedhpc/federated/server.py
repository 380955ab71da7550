"""The server's side of a round: from the reduced buffer to the next state. Lives on root only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedhpc.errors import DIVERGES_AGAIN, FedhpcError
from fedhpc.federated.algorithm import Cohort, FederatedAlgorithm, Vectors, Weighting
from fedhpc.federated.buffers import Down, Up, Verdict
from fedhpc.federated.host import LAST, MOVED

_WHY = {
    Verdict.NOT_FINITE: "its result is not finite",
    Verdict.OUTSIDE_GRID: "an entry of its result left the grid",
    Verdict.STATISTICS: "a batch norm statistic left its grid",
}


_BLOCK = 1 << 16
"""Elements per pass over the vectors (SCAFFOLD, 11 M weights: 28 ms in blocks, 43 ms and 90 MB more at once)."""

_ALL_ACCEPTED = 1e-12

EvaluatedModel = Literal["broadcast_next", "avg_selected", "avg_all"]


@dataclass(frozen=True)
class RoundSummary:
    """What the reduced tail says about a round.

    Attributes:
        cohort: who was asked and who was accepted.
        seconds: training seconds of each client of the cohort.
        loss: mean over accepted clients of their mean local loss; NaN where none took a step.
        diverged: client -> why it was skipped.
    """

    cohort: Cohort
    seconds: tuple[float, ...]
    loss: float
    diverged: dict[int, str]


class Server:
    """Holds the global state: vectors in float64, the weights rounded to the model's dtype after each update.

    Attributes:
        vectors: server vectors by name, `weights` among them (what is broadcast next).
        avg_selected: weighted mean of the participants' models after the last round.
        avg_all: mean over all clients of each one's latest model (the initial one before its first round), where
            that is followed; else None.
        buffers: batch-norm statistics sent with the next broadcast.
        counters: integer buffers, float64.
    """

    def __init__(
        self,
        algorithm: FederatedAlgorithm,
        weights: Tensor,
        buffers: Tensor,
        counters: Tensor,
        follow_all: bool = False,
    ) -> None:
        self._algorithm = algorithm
        self._dtype = weights.dtype
        start = weights.detach().to("cpu", torch.float64, copy=True)
        self.vectors: Vectors = {"weights": start, **algorithm.init(start)}
        self.avg_selected = start.clone()
        self.avg_all = start.clone() if follow_all else None
        self.buffers = buffers.detach().to("cpu", torch.float64, copy=True)
        self.counters = counters.clone()

    def fill(self, down: Down) -> None:
        """Write the state into the broadcast buffer."""
        for name in down.names:
            down[name].copy_(self.vectors[name])
        down["buffers"].copy_(self.buffers)
        down["counters"].copy_(self.counters)

    def model(self, which: EvaluatedModel) -> Tensor:
        """[num_weights] one of the three models that must not be confused."""
        if which == "avg_all":
            assert self.avg_all is not None, "avg_all is followed only where it was asked for"
            return self.avg_all
        return self.avg_selected if which == "avg_selected" else self.vectors["weights"]

    def update(
        self,
        up: Up,
        clients: tuple[int, ...],
        round: int,
        num_clients: int,
        on_divergence: str,
        frozen: Sequence[slice] = (),
    ) -> RoundSummary:
        """Take the reduced contributions of one round; nothing moves in the parts that are frozen.

        Raises:
            FedhpcError: every client diverged, or one did and the policy is `stop`.
        """
        summary = self._read_rows(up, clients, round, num_clients)
        if summary.diverged and (on_divergence == "stop" or not summary.cohort.accepted):
            named = "; ".join(f"client {c}: {why}" for c, why in list(summary.diverged.items())[:5])
            only_norms = set(summary.diverged.values()) == {_WHY[Verdict.STATISTICS]}
            change = "aggregation.buffer_grid_bits (a coarser grid)" if only_norms else "local.lr or with local.clip"
            remedy = f"begin anew with a lower {change}: {DIVERGES_AGAIN}"
            raise FedhpcError(
                f"{len(summary.diverged)} of {len(clients)} clients diverged in round {round + 1} ({named}); {remedy}"
            )
        rows = up.rows.to(torch.float64)
        accepted = {"samples": float(rows[:, up.SAMPLES].sum()), "uniform": float(rows[:, up.UNIFORM].sum())}
        if not min(accepted.values()) > 0:
            raise FedhpcError(f"the participants of round {round + 1} have no training samples: zero total weight")
        kept = [(vector[part], vector[part].clone()) for vector in self.vectors.values() for part in frozen]
        size = self.vectors["weights"].numel()
        block = _BLOCK if self._algorithm.elementwise else size
        for start in range(0, size, block):
            self._update_part(slice(start, start + block), up, accepted, summary.cohort)
        for place, values in kept:  # momentum and drift of earlier rounds would go on moving them
            place.copy_(values)
        return summary

    def take_mean(self, name: str, total: Tensor) -> None:
        """Replace what is kept up as a mean over all clients: a vector, or avg_all under the clients' name for it."""
        if name == LAST:
            self.avg_all = total
        else:
            self.vectors[name] = total

    def forget(self, parts: Sequence[slice]) -> None:
        """Begin some parts of all vectors but the weights anew: the weights there were replaced."""
        for name, fresh in self._algorithm.init(self.vectors["weights"]).items():
            for part in parts:
                self.vectors[name][part] = fresh[part]

    def _update_part(self, part: slice, up: Up, accepted: dict[str, float], cohort: Cohort) -> None:
        """Update one block of all vectors, so that what is read and written stays in the cache."""
        state = {name: vector[part] for name, vector in self.vectors.items()}
        totals = {}
        for name, kind in self._algorithm.traffic.summed.items():
            total = up[name][part].to(torch.float64)
            # The shares of a whole cohort add up to 1 but for their last bits: dividing would only cost time.
            totals[name] = total if abs(accepted[kind] - 1) < _ALL_ACCEPTED else total / accepted[kind]
        self._round_(torch.add(state["weights"], totals["delta"], out=self.avg_selected[part]))
        if self.avg_all is not None:
            self.avg_all[part].add_(up[MOVED][part])
        self._algorithm.server_update(state, totals, cohort)
        self._round_(state["weights"])

    def take_buffers(self, up: Up, weighting: Weighting = "samples") -> None:
        """Batch-norm statistics become the weighted mean, integer buffers the maximum over participants."""
        rows = up.rows.to(torch.float64)
        shares = rows[:, up.SAMPLES if weighting == "samples" else up.UNIFORM]
        self.buffers = up["buffers"].to(torch.float64) / float(shares.sum())
        if self.counters.numel():
            self.counters = rows[:, up.FIXED :].amax(0)

    def _round_(self, values: Tensor) -> None:
        """Round to the model's dtype, in place."""
        if self._dtype != torch.float64:
            values.copy_(values.to(self._dtype))

    def _read_rows(self, up: Up, clients: tuple[int, ...], round: int, num_clients: int) -> RoundSummary:
        rows = up.rows[: len(clients)].to(torch.float64)
        verdicts = [Verdict(int(v)) for v in rows[:, up.VERDICT]]
        assert Verdict.MISSING not in verdicts, "a client of the cohort was trained by no rank"
        good = [i for i, v in enumerate(verdicts) if v is Verdict.ACCEPTED]
        loss = float(rows[good, up.LOSS].nanmean())  # a client that skipped all its steps has none
        shares = {
            kind: tuple((rows[good, column] / rows[good, column].sum()).tolist())
            for kind, column in (("samples", up.SAMPLES), ("uniform", up.UNIFORM))
        }
        steps = tuple(int(n) for n in rows[good, up.STEPS])
        cohort = Cohort(round, clients, tuple(clients[i] for i in good), num_clients, steps, shares)
        diverged = {c: _WHY[v] for c, v in zip(clients, verdicts, strict=True) if v is not Verdict.ACCEPTED}
        return RoundSummary(cohort, tuple(float(s) for s in rows[:, up.SECONDS]), loss, diverged)
