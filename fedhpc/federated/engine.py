"""The round loop: broadcast, evaluate, train, reduce, update; the same on one rank and on many."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import product

import torch

from fedhpc.comm.world import World
from fedhpc.data.clients import ClientData
from fedhpc.errors import AgreedError, FedhpcError
from fedhpc.federated.algorithm import FederatedAlgorithm
from fedhpc.federated.buffers import Down, Order, Sizes, Up
from fedhpc.federated.client_state import ClientStateStore, fetch_away, return_home
from fedhpc.federated.cohorts import CohortPlan
from fedhpc.federated.evaluation import ClientExam, Exam
from fedhpc.federated.examiner import Examiner
from fedhpc.federated.host import LAST, MOVED, ClientObserver, Host, initial_state
from fedhpc.federated.losses import Losses
from fedhpc.federated.personalize import Personalizer
from fedhpc.federated.placement import CostTable, Placement
from fedhpc.federated.records import NullSink, RoundTimes, Sink, record_round
from fedhpc.federated.server import Server
from fedhpc.federated.state import EngineSettings, Outcome, Progress, Saver, Snapshot
from fedhpc.tensors.accumulator import add_weighted_
from fedhpc.timing import Stopwatch
from fedhpc.train.extension import ClientExtension
from fedhpc.train.local import LocalTrainer


class Engine:
    """Runs one federation.

    Args:
        world: the ranks.
        algorithm: the federated rule.
        trainer: this rank's model and how it trains.
        data: this rank's access to the clients' samples.
        cohorts: who takes part in which round.
        settings: how the loop runs.
        sink: takes records, on root.
        saver: writes checkpoints, or None.
        stop_requested: asked at round borders whether someone wants a checkpoint and a stop.
        observer: is shown every client's local result.
        personalizer: adapts the evaluated model to each client.
        exam: what else each evaluated model is asked, such as about environments that no client has.
        extensions: what clients carry and do beside the algorithm.
    """

    def __init__(
        self,
        world: World,
        algorithm: FederatedAlgorithm,
        trainer: LocalTrainer,
        data: ClientData,
        cohorts: CohortPlan,
        settings: EngineSettings,
        sink: Sink,
        clock: Stopwatch | None = None,
        saver: Saver | None = None,
        stop_requested: Callable[[], bool] = lambda: False,
        observer: ClientObserver | None = None,
        personalizer: Personalizer | None = None,
        exam: Exam | ClientExam | None = None,
        extensions: Sequence[ClientExtension] = (),
    ) -> None:
        self._follow_all = follow_all = settings.follow_all or settings.evaluated_model == "avg_all"
        self._world, self._algorithm, self._trainer = world, algorithm, trainer
        self._data, self._cohorts, self._settings = data, cohorts, settings
        self._sink, self._saver, self._stop_requested = sink, saver, stop_requested
        self.clock = clock or Stopwatch()
        self.placement = Placement.build(data.num_train, world.size, settings.root_hosts, settings.balanced)
        self._host = Host(algorithm, trainer, data, settings.sums, self.clock, follow_all, observer, extensions)
        self._examiner = Examiner(world, trainer, data, settings, self.clock, personalizer, exam, extensions)
        vector, traffic = trainer.vector, algorithm.traffic
        sizes = Sizes(len(vector), vector.buffers.numel(), vector.num_counters, cohorts.largest)
        self._down = Down(traffic.broadcast, sizes, vector.weights.dtype)
        exact = settings.sums.grid_bits is not None
        summed = (*traffic.summed, *((MOVED,) if follow_all else ()))
        self._up = Up(summed, sizes, torch.float64 if exact else torch.float32)
        self.progress = Progress()
        self.costs = CostTable(data.num_train)
        keep_local = settings.sums.buffers == "keep_local"
        first = initial_state(algorithm, vector, follow_all, keep_local, extensions)
        self.states = ClientStateStore(first, settings.state_budget)
        self.server: Server | None = None
        if world.is_root:
            self.server = Server(algorithm, vector.weights, vector.buffers, vector.counters(), follow_all)
        self._failure = ""
        self._losses = Losses()

    def continue_from(self, previous: Engine) -> None:
        """Go on where another engine of the same clients and model ended, with other data or settings."""
        self.server, self.progress, self.states = previous.server, previous.progress, previous.states
        self.placement, self.costs = previous.placement, previous.costs

    def forget(self, parts: Sequence[slice]) -> None:
        """On every rank: begin anew what the algorithm remembers of parts of the model whose weights were replaced."""
        if self.server is not None:
            self.server.forget(parts)
        for client in self.states.clients():
            flat = self.states.flat(client).clone()
            vectors = self.states.split(flat)
            for name, part in product(self._algorithm.traffic.client_state, parts):
                vectors[name][part] = 0
            self.states.put(client, flat)

    def snapshot(self) -> Snapshot:
        """The state at this round border."""
        return Snapshot(self.progress, self.server, self.states, self.costs)

    def warm_up(self, rounds: int) -> None:
        """Run complete rounds and throw them away: kernels, allocator and communicators are warm then.

        Random streams are named, so there are none to put back; measured costs are kept, they only place clients.
        """
        if not rounds:
            return
        progress, server, sink = self.progress, copy.deepcopy(self.server), self._sink
        first, order = progress.round, Order.GO
        touched = {c for r in range(first, first + rounds) for c in self._cohorts.clients(r)}
        states = self.states.backup(touched)
        self.progress, self._sink = copy.copy(progress), NullSink()
        for round in range(first, first + rounds):
            if self._broadcast(order) is Order.FAIL:
                break  # the real rounds will say so
            order = self._train(round, 0.0)
        self._down["seconds"].zero_()
        self.progress, self.server, self._sink = progress, server, sink
        self.states.restore(states)
        self._losses = Losses()  # what was remembered belongs to rounds that never were

    def _cohort(self, round: int) -> tuple[int, ...]:
        return self._losses.without_lost(round, self._cohorts.clients(round))

    def rehome(self, kept: Sequence[int]) -> None:
        """Deal the clients of lost ranks out to those that are left; before any collective, since it may fail as well.

        Args:
            kept: former ranks of those that are left, in their new order; the former root is among them.
        """
        lost = [client for client, home in enumerate(self.placement.homes) if home not in kept]
        self.placement = self.placement.among(kept)
        self._losses.leave_out(self.progress.round, lost)

    def survive(self, saved: Callable[[list[int]], dict[int, torch.Tensor]]) -> list[int]:
        """Go back to root's last round border with the ranks that are left; collective. `run` redoes the round.

        The round is redone without the clients whose home was lost; from the next on they take part again, with the
        state that `saved` has of them, else that of a client that never trained. Where ranks are lost in here too,
        `rehome` and this method begin again: root's notes then have the clients of both losses.

        Args:
            saved: the states of some clients in the last checkpoint.

        Returns:
            The clients whose home was lost since this was last done.
        """
        notes, lost = self._losses, sorted(self._losses.homeless)
        self.progress, self.placement, notes.left_out, lost = self._world.share(
            (self.progress, self.placement, notes.left_out, lost)
        )
        notes.put_back(self.states, self.progress.round)
        seconds = torch.from_numpy(self.costs.seconds.copy())
        self._world.broadcast_(seconds)
        self.costs.seconds = seconds.numpy()
        for client, flat in saved([c for c in lost if self.placement.homes[c] == self._world.rank]).items():
            self.states.put(client, flat)
        self._form_means()
        notes.homeless = frozenset()
        return lost

    def _form_means(self) -> None:
        """Make the server's means over clients those of the states that there are now; collective."""
        means = dict(self._algorithm.means)
        if self._follow_all:
            means[LAST] = (LAST, self._algorithm.traffic.summed["delta"])
        mine, sizes = self.placement.at_home(self._world.rank), self._data.num_train
        for name, (own, kind) in means.items():
            total = torch.zeros(len(self._trainer.vector), dtype=torch.float64)
            for client in mine:
                share = sizes[client] / max(1, sum(sizes)) if kind == "samples" else 1 / len(sizes)
                add_weighted_(total, self.states.get(client)[own], share, self._settings.sums.grid_bits)
            self._world.reduce_sum_(total)
            if self.server is not None:
                self.server.take_mean(name, total)

    def run(self) -> Outcome:
        """Run from the present state to the cap, the target, or a stop request; collective.

        Raises:
            AgreedError: all clients of a round diverged, or one did under `on_divergence: stop`; on every rank.
        """
        first, order = self.progress.round, Order.GO
        while True:
            round = self.progress.round
            began = self.clock.now()
            order = self._broadcast(order)
            sent = self.clock.now() - began
            if order is Order.FAIL:
                raise AgreedError(self._world.share(self._failure))
            every = self._settings.checkpoint_every
            if order is Order.STOP or (every and round > first and round % every == 0):
                self._save()
            if order is Order.STOP:
                return Outcome("stopped", self.progress)
            last = round == self._settings.rounds
            due = last or round % self._settings.evaluate_every == 0
            if due and self.progress.evaluated != round:  # a run that stopped after this evaluation has it
                reached, stop = self._examiner.examine(
                    self.snapshot(), self.placement, self._down, self._sink, self._stop_requested
                )
                if last or (reached and self._settings.stop_at_target):
                    return Outcome("finished", self.progress)
                if stop:
                    self._save()
                    return Outcome("stopped", self.progress)
            order = self._train(round, sent)

    def _broadcast(self, order: Order) -> Order:
        """Send the state of this round border, and the server's order, to all ranks."""
        with self.clock.phase("broadcast", round=self.progress.round + 1):
            if self.server:
                self.server.fill(self._down)
                self._down.order = order
            self._world.broadcast_(self._down.data)
        if self.progress.round:
            cohort = self._cohort(self.progress.round - 1)
            self.costs.update(cohort, self._down["seconds"][: len(cohort)].tolist())
        return self._down.order

    def _save(self) -> None:
        if self._saver:
            with self.clock.phase("checkpoint", round=self.progress.round):
                self._saver.save(self.snapshot())

    def _train(self, round: int, sent: float) -> Order:
        """One round after its broadcast; returns root's order for the next broadcast."""
        world, clock, began = self._world, self.clock, self.clock.now()
        moved = sum(world.moved.values())
        cohort = self._cohort(round)
        if world.survives:
            self._losses.remember(self.states, round, cohort)
        ranks = self.placement.plan(cohort, self.costs.expected(cohort))
        homes = [self.placement.homes[c] for c in cohort]
        guests = fetch_away(world, self.states, cohort, homes, ranks)
        mine = [i for i, rank in enumerate(ranks) if rank == world.rank]
        self._up.clear()
        returned = self._host.train(round, cohort, mine, self._down, self._up, self.states, guests)
        return_home(world, self.states, cohort, homes, ranks, returned)
        self._up["signal"][0] = float(self._stop_requested())
        trained = clock.now()
        with clock.phase("wait", round=round + 1):
            world.barrier()
        waited = clock.now()
        with clock.phase("reduce", round=round + 1):
            world.reduce_sum_(self._up.data)
        reduced = clock.now()
        order = self._update(round, cohort) if self.server else Order.GO
        self.progress.round += 1
        times = RoundTimes(sent + clock.now() - began, waited - trained, sent + reduced - waited)
        self.progress.seconds_train += times.total
        if self.server and order is not Order.FAIL:
            traffic = self._algorithm.traffic
            moved = sum(world.moved.values()) - moved + self._down.data.nbytes
            record_round(
                self._sink,
                self.progress,
                self._summary,
                ranks,
                self.placement.ranks,
                times,
                moved,
                len(traffic.summed),
                self._trainer,
            )
        return order

    def _update(self, round: int, cohort: tuple[int, ...]) -> Order:
        """Root: the server update, and what to tell the ranks with the next broadcast."""
        assert self.server is not None
        with self.clock.phase("update", round=round + 1):
            try:
                self._summary = self.server.update(
                    self._up,
                    cohort,
                    round,
                    len(self._data.num_train),
                    self._settings.on_divergence,
                    self._trainer.solver.frozen,
                )
            except FedhpcError as problem:
                self._failure = str(problem)
                return Order.FAIL
            if self._settings.sums.buffers == "average":
                self.server.take_buffers(self._up, self._settings.sums.buffer_weighting)
        self._down["seconds"].zero_()
        self._down["seconds"][: len(cohort)] = torch.tensor(self._summary.seconds, dtype=self._down.data.dtype)
        return Order.STOP if float(self._up["signal"][0]) > 0 else Order.GO

    def final_model(self) -> dict[str, torch.Tensor]:
        """Root: the state dict of the model that would be broadcast next."""
        assert self.server is not None
        vector = self._trainer.vector
        vector.weights.copy_(self.server.vectors["weights"])
        vector.buffers.copy_(self.server.buffers)
        vector.set_counters(self.server.counters)
        return {name: t.detach().to("cpu") for name, t in vector.module.state_dict().items()}
