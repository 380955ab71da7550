"""The side of a rank that hosts clients: trains those placed here and adds up what they return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, Protocol

import torch
from torch import Tensor

from fedhpc.data.clients import ClientData
from fedhpc.federated.algorithm import FederatedAlgorithm, Vectors, Weighting
from fedhpc.federated.buffers import Down, Up, Verdict
from fedhpc.federated.client_state import ClientStateStore
from fedhpc.tensors.accumulator import add_weighted_, largest_entry, problem_with
from fedhpc.tensors.vector import ParameterVector
from fedhpc.timing import Stopwatch
from fedhpc.train.extension import ClientExtension
from fedhpc.train.local import LocalTrainer, LocalTraining

BufferPolicy = Literal["average", "keep_local", "keep_global"]

LOCAL_BUFFERS = ("_buffers", "_counters")
"""Names of a client's own batch-norm statistics among its state, under `keep_local`."""

LAST, MOVED = "_last", "_moved"
"""A client's latest model among its state, and the sum of what these models moved, when avg_all is followed."""


def initial_state(
    algorithm: FederatedAlgorithm,
    vector: ParameterVector,
    follow_all: bool,
    keep_local: bool,
    extensions: Sequence[ClientExtension],
) -> Vectors:
    """State of a client that never trained, on the host."""
    weights = vector.weights.to("cpu", copy=True)
    state = {name: torch.zeros_like(weights) for name in algorithm.traffic.client_state}
    if follow_all:
        state[LAST] = weights
    if keep_local:
        values = (vector.buffers.to("cpu", copy=True), vector.counters().to(weights.dtype))
        state.update(zip(LOCAL_BUFFERS, values, strict=True))
    for extension in extensions:
        state.update(extension.initial())
    return state


@dataclass(frozen=True)
class SumSettings:
    """How contributions are added.

    Attributes:
        grid_bits: grid of exact sums; None gives plain float32 sums.
        buffer_grid_bits: a coarser grid for batch-norm statistics; None takes `grid_bits`.
        buffers: `average`, `keep_local` (each client its own, FedBN) or `keep_global` (as they start): what becomes of
            batch-norm statistics.
        buffer_weighting: of that average.
    """

    grid_bits: int | None = 40
    buffer_grid_bits: int | None = None
    buffers: BufferPolicy = "average"
    buffer_weighting: Weighting = "samples"

    @property
    def bound(self) -> float:
        """Magnitude from which an entry counts as diverged."""
        return float("inf") if self.grid_bits is None else largest_entry(self.grid_bits)

    @property
    def buffer_grid(self) -> int | None:
        """Grid of the batch-norm statistics."""
        return self.buffer_grid_bits if self.buffer_grid_bits is not None else self.grid_bits


class ClientObserver(Protocol):
    """Is shown every client's weights after its local training (tests and diagnostics)."""

    def client_done(self, round: int, client: int, weights: Tensor) -> None:
        """`weights` is a view; copy what you keep."""


class Host:
    """Trains clients one after another on this rank's model and accumulates their contributions."""

    def __init__(
        self,
        algorithm: FederatedAlgorithm,
        trainer: LocalTrainer,
        data: ClientData,
        sums: SumSettings,
        clock: Stopwatch,
        follow_all: bool = False,
        observer: ClientObserver | None = None,
        extensions: Sequence[ClientExtension] = (),
    ) -> None:
        self._extensions = extensions
        if extensions:
            trainer.after_step = self._after_step
        self._algorithm = algorithm
        self._trainer = trainer
        self._data = data
        self._sums = sums
        self._clock = clock
        self._observer = observer
        self._follow_all = follow_all
        self._total = total = max(1, sum(data.num_train))
        self._relative = [n * len(data.num_train) / total for n in data.num_train]

    def train(
        self,
        round: int,
        cohort: Sequence[int],
        mine: Sequence[int],
        down: Down,
        up: Up,
        states: ClientStateStore,
        guests: dict[int, Tensor],
    ) -> dict[int, Tensor]:
        """Train the clients at positions `mine` of the cohort, longest work first or not: the sums are the same.

        Returns:
            New flat states of the guests among them (clients whose home is elsewhere).
        """
        server = down.vectors(self._trainer.vector.weights.device)
        planned = max(1, sum(self._data.num_train[c] for c in cohort))  # none at all: root says so
        returned: dict[int, Tensor] = {}
        for position in mine:
            client = cohort[position]
            start = self._clock.now()
            with self._clock.phase("train", client=client, round=round + 1):
                old = guests[client] if client in guests else states.flat(client)
                local, result = self._update(round, client, server, down, states.split(old))
                verdict = self._judge(result)
                if verdict is Verdict.ACCEPTED:
                    weights = {"samples": self._data.num_train[client] / planned, "uniform": 1 / len(cohort)}
                    self._add(result, weights, up, position)
                    if self._follow_all:
                        self._add_moved(states.split(old)[LAST], result[LAST], client, up)
                if states.names:
                    new = states.join(result) if verdict is Verdict.ACCEPTED else old
                    if client in guests:
                        returned[client] = new
                    elif new is not old:
                        states.put(client, new)
            row = up.rows[position]
            row[up.VERDICT], row[up.SECONDS] = float(verdict), self._clock.now() - start
            row[up.LOSS], row[up.STEPS] = local.mean_loss, local.num_steps
        return returned

    def _update(
        self, round: int, client: int, server: Vectors, down: Down, state: Vectors
    ) -> tuple[LocalTraining, Vectors]:
        """Run the algorithm's client rule from the broadcast model; its own statistics join the result."""
        vector = self._trainer.vector
        device = vector.weights.device
        keep_local = self._sums.buffers == "keep_local"
        buffers = state[LOCAL_BUFFERS[0]] if keep_local else down["buffers"]
        vector.set_counters(state[LOCAL_BUFFERS[1]] if keep_local else down["counters"])
        local = self._trainer.begin(
            client, round, self._data.train(client), server["weights"], buffers.to(device), self._relative[client]
        )
        for extension in self._extensions:
            extension.begin(client, round, state)
        if any(extension.moves_start for extension in self._extensions):
            server = {**server, "weights": vector.weights.clone()}
        mine = {name: state[name].to(device) for name in self._algorithm.traffic.client_state}
        frozen = self._trainer.solver.frozen
        result = self._algorithm.client_update(server, mine, local)
        for name, part in product(mine, frozen):
            result[name][part] = mine[name][part]  # a layer that stays teaches its client nothing
        if self._observer:
            self._observer.client_done(round, client, vector.weights)
        for extension in self._extensions:
            result = {**result, **extension.end()}
        if self._follow_all:
            result = {**result, LAST: vector.weights}
        if keep_local:
            result = {**result, LOCAL_BUFFERS[0]: vector.buffers, LOCAL_BUFFERS[1]: vector.counters()}
        return local, result

    def _after_step(self, num_steps: int) -> None:
        for extension in self._extensions:
            extension.after_step(num_steps)

    def _judge(self, result: Vectors) -> Verdict:
        """Check every unweighted vector: a sum is exact only if each is finite and inside the grid."""
        worst = Verdict.ACCEPTED
        names = (*self._algorithm.traffic.summed, *((LAST,) if self._follow_all else ()))
        checked = [(result[name], self._sums.bound) for name in names]
        checked += [(result[name], float("inf")) for name in self._algorithm.traffic.client_state]
        grid, buffers = self._sums.buffer_grid, self._trainer.vector.buffers
        if self._sums.buffers != "keep_global":
            bounded = self._sums.buffers == "average" and grid is not None
            checked.append((buffers, largest_entry(grid) if bounded and grid is not None else float("inf")))
        for values, bound in checked:
            problem = problem_with(values, bound)
            if problem == "not finite":
                return Verdict.NOT_FINITE
            if problem and worst is Verdict.ACCEPTED:
                worst = Verdict.STATISTICS if values is buffers else Verdict.OUTSIDE_GRID
        return worst

    def _add(self, result: Vectors, weights: dict[str, float], up: Up, position: int) -> None:
        """Add one accepted contribution; its weights go up in its row, so that root adds them in the cohort's order."""
        grid = self._sums.grid_bits
        for name, kind in self._algorithm.traffic.summed.items():
            add_weighted_(up[name], result[name].to("cpu"), weights[kind], grid)
        if self._sums.buffers == "average":
            buffers = self._trainer.vector.buffers.to("cpu")
            share = weights[self._sums.buffer_weighting]
            add_weighted_(up["buffers"], buffers, share, self._sums.buffer_grid)
        row = up.rows[position]
        row[up.SAMPLES], row[up.UNIFORM] = weights["samples"], weights["uniform"]
        row[up.FIXED :] = self._trainer.vector.counters()

    def _add_moved(self, old: Tensor, new: Tensor, client: int, up: Up) -> None:
        """Add what a client's new model changes in the mean over all clients; both ends are on the grid."""
        kind = self._algorithm.traffic.summed["delta"]
        share = self._data.num_train[client] / self._total if kind == "samples" else 1 / len(self._relative)
        grid = self._sums.grid_bits
        add_weighted_(up[MOVED], new.to("cpu"), share, grid)
        add_weighted_(up[MOVED], old, -share, grid)
