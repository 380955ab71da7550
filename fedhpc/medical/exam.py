"""The exam of a common model at the end of each task: all clients' test tasks and the hold-out, each image once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from fedhpc.data.samples import Samples
from fedhpc.data.timeline import Timeline
from fedhpc.federated.records import Sink
from fedhpc.federated.state import Progress
from fedhpc.medical.scores import Moment, task_records
from fedhpc.report.ltr import cross_entropy, predicted
from fedhpc.train.evaluate import Counts
from fedhpc.train.local import LocalTrainer

Answer = tuple[np.ndarray, np.ndarray]
"""Indices of samples int64 [n], and their class scores float32 [n, C]."""


class TaskExam:
    """Implements `fedhpc.federated.evaluation.Exam` and `CoversClients`.

    A common model is the same for every client, so each image passes through it once, on one of the ranks.

    Args:
        timeline: who is tested on what.
        labels: int [num_samples] class of every sample.
        read: indices -> samples on the rank's device.
        rounds_per_task: rounds of each task; other moments are passed over.
        batch_size: samples per forward pass.
        model: name of the evaluated model in the records.
    """

    def __init__(
        self,
        timeline: Timeline,
        labels: np.ndarray,
        read: Callable[[np.ndarray], Samples],
        rounds_per_task: int,
        batch_size: int,
        model: str = "broadcast_next",
    ) -> None:
        self._timeline, self._labels, self._read = timeline, labels, read
        self._rounds, self._batch, self._model = rounds_per_task, batch_size, model
        tested = [rows for client in timeline.test for rows in client]
        self._asked = np.unique(np.concatenate([*tested, timeline.holdout]))

    def evaluate(self, trainer: LocalTrainer, share: int, shares: int) -> Answer:
        """Class scores of every `shares`-th piece of `batch_size` samples, beginning with piece `share`.

        The pieces do not depend on `shares`: a batch of another size may take another kernel, with other last bits.
        """
        pieces = [self._asked[start : start + self._batch] for start in range(0, len(self._asked), self._batch)]
        mine = pieces[share::shares]
        return self._answer(trainer, np.concatenate(mine) if mine else self._asked[:0])

    def _answer(self, trainer: LocalTrainer, mine: np.ndarray) -> Answer:
        trainer.objective.eval()
        scores = []
        with torch.no_grad():
            for start in range(0, len(mine), self._batch):
                x = self._read(mine[start : start + self._batch]).x
                scores.append(trainer.objective.predict(trainer.transform(x, None, False)).float().cpu().numpy())
        trainer.objective.train()
        return mine, np.concatenate(scores) if scores else np.zeros((0, 0), dtype=np.float32)

    def client_counts(self, progress: Progress, answers: Sequence[Any]) -> list[tuple[int, Counts]]:
        """Root: right answers and loss of every client on its own test samples of the task that has just ended."""
        task, by_client = max(0, progress.round // self._rounds - 1), self._by_client(answers)
        found = []
        for client, (asked, logits) in by_client.items():
            rows = self._timeline.test[client][task]
            if not len(rows):
                found.append((client, Counts(0, 0, 0.0)))
                continue
            scores, labels = logits[np.searchsorted(asked, rows)], self._labels[rows]
            loss = cross_entropy(scores, labels) * len(rows)
            found.append((client, Counts(int((predicted(scores) == labels).sum()), len(rows), loss)))
        return found

    def _by_client(self, answers: Sequence[Any]) -> dict[int, Answer]:
        """The answer that speaks for each client, its indices ascending: the same one for all."""
        return dict.fromkeys(range(self._timeline.num_clients), self._joined(answers))

    def _joined(self, answers: Sequence[Answer]) -> Answer:
        indices = np.concatenate([rows for rows, _ in answers])
        scored = [scores for rows, scores in answers if len(rows)]
        logits = np.concatenate(scored) if scored else np.zeros((0, 0), dtype=np.float32)
        order = np.argsort(indices)
        return indices[order], logits[order]

    def record(self, sink: Sink, progress: Progress, answers: Sequence[Answer]) -> None:
        """Root: scores of every client's tasks and of the hold-out, where a task has just ended."""
        if progress.round == 0 or progress.round % self._rounds:
            return
        moment = Moment(progress.round, progress.seconds_train, self._model)
        answer = self._joined(answers)
        for client in range(self._timeline.num_clients):
            self._write_tasks(sink, moment, answer, client)
        self._write(sink, moment, answer, self._timeline.holdout, None, None)

    def _write_tasks(self, sink: Sink, moment: Moment, answer: Answer, client: int) -> None:
        for task, rows in enumerate(self._timeline.test[client]):
            self._write(sink, moment, answer, rows, client, task)

    def _write(
        self, sink: Sink, moment: Moment, answer: Answer, rows: np.ndarray, client: int | None, task: int | None
    ) -> None:
        if not len(rows):
            return
        timeline, (asked, logits) = self._timeline, answer
        found = logits[np.searchsorted(asked, rows)]
        groups = len(timeline.group_names)
        for record in task_records(moment, found, self._labels[rows], timeline.group[rows], groups, client, task):
            value = float("nan") if record.value is None else record.value
            where = {name: at for name in ("client", "task", "model") if (at := getattr(record, name)) is not None}
            sink.record(record.what, value, record.unit, record.round, record.seconds, **where)


class OwnModelExam(TaskExam):
    """The same where models differ from client to client: each is asked about its client's tasks and the hold-out.

    Implements `fedhpc.federated.evaluation.ClientExam`; the hold-out's scores name the client. A client is asked about
    the part of the hold-out whose classes it knows.

    Args:
        known: bool [clients, classes]; None: all know all.
    """

    def __init__(self, *args: Any, known: np.ndarray | None = None) -> None:
        super().__init__(*args)
        self._known = known

    def _holdout(self, client: int) -> np.ndarray:
        rows = self._timeline.holdout
        return rows if self._known is None else rows[self._known[client, self._labels[rows]]]

    def evaluate_client(self, trainer: LocalTrainer, client: int) -> Answer:
        """Class scores of the client's model on all that it is asked."""
        rows = [*self._timeline.test[client], self._holdout(client)]
        return self._answer(trainer, np.unique(np.concatenate(rows)))

    def record(self, sink: Sink, progress: Progress, answers: Sequence[Any]) -> None:
        """Root: scores of every client's model, where a task has just ended."""
        if progress.round == 0 or progress.round % self._rounds:
            return
        moment = Moment(progress.round, progress.seconds_train, self._model)
        for client, answer in sorted(self._by_client(answers).items()):
            self._write_tasks(sink, moment, answer, client)
            self._write(sink, moment, answer, self._holdout(client), client, None)

    def _by_client(self, answers: Sequence[Any]) -> dict[int, Answer]:
        return dict(pair for found in answers for pair in found)
