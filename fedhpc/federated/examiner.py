"""The evaluation at a round border: which model, by whom, and what is written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from fedhpc.data.clients import ClientData
from fedhpc.federated.buffers import Down
from fedhpc.federated.evaluation import (
    AccuracySummary,
    ClientExam,
    CoversClients,
    Exam,
    evaluate_client,
    summarize,
)
from fedhpc.federated.host import LOCAL_BUFFERS
from fedhpc.federated.personalize import Personalizer
from fedhpc.federated.placement import Placement
from fedhpc.federated.records import Sink, record_evaluation
from fedhpc.federated.state import EngineSettings, Snapshot
from fedhpc.timing import Stopwatch
from fedhpc.train.evaluate import Counts
from fedhpc.train.extension import ClientExtension
from fedhpc.train.local import LocalTrainer

if TYPE_CHECKING:
    from fedhpc.comm.world import World

Place = Callable[[int | None], None]
"""Puts the evaluated model into the trainer: for one client, or (None) the one that all have in common."""


class Examiner:
    """Evaluates the server's model on all clients, and asks it whatever else an exam asks.

    Args:
        world: the ranks.
        trainer: this rank's model.
        data: this rank's access to the clients' samples.
        settings: of the round loop.
        clock: gets a phase for the whole and one per client.
        personalizer: adapts the model to each client.
        exam: what else is asked; one that covers the clients' test samples spares a pass over them.
        extensions: what clients carry beside the algorithm.
    """

    def __init__(
        self,
        world: World,
        trainer: LocalTrainer,
        data: ClientData,
        settings: EngineSettings,
        clock: Stopwatch,
        personalizer: Personalizer | None = None,
        exam: Exam | ClientExam | None = None,
        extensions: Sequence[ClientExtension] = (),
    ) -> None:
        self._world, self._trainer, self._data, self._settings = world, trainer, data, settings
        self._clock, self._personalizer, self._exam, self._extensions = clock, personalizer, exam, extensions
        asked: object = exam
        self._covering = asked if isinstance(asked, CoversClients) else None

    def examine(
        self, state: Snapshot, placement: Placement, down: Down, sink: Sink, stop_requested: Callable[[], bool]
    ) -> tuple[bool, bool]:
        """Evaluate at a round border and write it down; collective.

        Args:
            state: at this border; its progress is brought up to date.
            placement: where the clients are at home.
            down: what was just broadcast.
            sink: takes the records, on root.
            stop_requested: whether someone wants a stop.

        Returns:
            Whether the target is reached, and whether someone asked to stop; the same on every rank.
        """
        world, progress, began = self._world, state.progress, self._clock.now()
        summary: AccuracySummary | None = None
        verdict: tuple[float | None, bool, bool] | None = None
        with self._clock.phase("evaluation", round=progress.round):
            place = self._placer(state, down)
            counts, answers = self._ask(place, placement)
            gathered = world.gather((counts, answers, bool(stop_requested())))
            if gathered is not None:
                told = [a for _, a, _ in gathered if a is not None]
                if self._covering:
                    summary = summarize(self._covering.client_counts(progress, told))
                else:
                    summary = summarize([c for found, _, _ in gathered for c in found])
                mean = summary.mean if summary.clients else None
                verdict = (mean, summary.reaches(self._settings.target), any(s for _, _, s in gathered))
            verdict = world.share(verdict)
        assert verdict is not None
        seconds = self._clock.now() - began
        progress.accuracy, reached, stop = verdict
        progress.evaluated = progress.round
        progress.seconds_evaluate += seconds
        if reached and progress.reached is None:
            progress.reached = (progress.round, progress.seconds_train)
        if summary is not None:
            record_evaluation(sink, progress, summary, self._settings.evaluated_model, seconds)
            if self._exam:
                self._exam.record(sink, progress, told)
        return reached, stop

    def _ask(self, place: Place, placement: Placement) -> tuple[list[tuple[int, Counts]], Any]:
        """This rank's part: counts of the clients at home here, and answers to the exam."""
        exam, trainer = self._exam, self._trainer
        covered = self._covering is not None
        counts: list[tuple[int, Counts]] = []
        own: list[tuple[int, Any]] = []
        if not covered or isinstance(exam, ClientExam):
            for client in placement.at_home(self._world.rank):
                with self._clock.phase("evaluate", client=client):
                    place(client)
                    if not covered:
                        batch = self._settings.evaluate_batch
                        found = evaluate_client(client, trainer, self._data, batch, self._personalizer)
                        counts.append((client, found))
                    if isinstance(exam, ClientExam):
                        own.append((client, exam.evaluate_client(trainer, client)))
        if exam is None:
            return counts, None
        if isinstance(exam, ClientExam):
            return counts, own
        hosts = placement.ranks
        if self._world.rank not in hosts:
            return counts, None
        place(None)
        return counts, exam.evaluate(trainer, hosts.index(self._world.rank), len(hosts))

    def _placer(self, state: Snapshot, down: Down) -> Place:
        """How the evaluated model gets into the trainer; only one that was not just broadcast travels again."""
        vector, which = self._trainer.vector, self._settings.evaluated_model
        weights, buffers, counters = down["weights"], down["buffers"], down["counters"]
        if which != "broadcast_next":
            weights = torch.empty_like(weights)
            if state.server:
                weights.copy_(state.server.model(which))
            self._world.broadcast_(weights)

        def place(client: int | None) -> None:
            vector.weights.copy_(weights)
            if client is not None and self._settings.sums.buffers == "keep_local":
                own = state.states.get(client)
                vector.buffers.copy_(own[LOCAL_BUFFERS[0]])
                vector.set_counters(own[LOCAL_BUFFERS[1]])
            else:
                vector.buffers.copy_(buffers)
                vector.set_counters(counters)
            if client is not None:
                for extension in self._extensions:
                    extension.place(client, state.progress.round, state.states.get(client))

        return place
