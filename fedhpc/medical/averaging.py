"""SWAD in a federation: every client averages its own steps, steered by its validation samples, and is judged by that.

The plain model goes on being trained and averaged by the server. What a client has summed up so far is carried, so a
run goes on in the middle of a task and on any rank; each task begins anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from fedhpc.data.balanced import TaskPasses
from fedhpc.data.samples import Samples
from fedhpc.medical.longtail import refresh_batch_norm
from fedhpc.medical.recipes._base import Averaging
from fedhpc.medical.stages import Schedule
from fedhpc.medical.swad import CompatSwad, RunningMean, Segment, Swad
from fedhpc.seeding import derive
from fedhpc.train.evaluate import evaluate
from fedhpc.train.extension import Carried, ClientExtension
from fedhpc.train.local import LocalTrainer

Part = Callable[[int, int], Samples]
"""(client, task) -> its samples."""

_HEADER = 8
"""Numbers before the segments': task, steps, size of the segment, threshold, over?, then three of the valley."""


class _Average:
    """One client's averaging of one task, of either kind, to and from flat vectors."""

    def __init__(self, rule: Averaging, slots: int) -> None:
        numbers = (rule.num_converge, rule.num_tolerance, rule.tolerance)
        self.swad: Swad[Tensor] | CompatSwad[Tensor] = CompatSwad(*numbers) if rule.compat else Swad(*numbers)
        self.segment: RunningMean[Tensor] = RunningMean()
        self.step, self._slots = 0, slots

    def add(self, weights: Tensor) -> None:
        if isinstance(self.swad, Swad):
            self.swad.add(weights)
        else:
            self.segment.add(weights)
            self.step += 1

    def evaluated(self, loss: float) -> None:
        loss = float(np.float32(loss))  # as it will be carried
        if isinstance(self.swad, Swad):
            self.swad.evaluated(loss)
        elif self.segment.count:
            self.swad.evaluated(self.segment.mean, self.step, loss)
            self.segment = RunningMean()

    def pack(self, task: int, like: Tensor) -> Carried:
        swad, numbers = self.swad, torch.zeros(_HEADER + 3 * self._slots, dtype=like.dtype)
        recent = torch.zeros(self._slots, len(like), dtype=like.dtype)
        valley: Tensor | None
        if isinstance(swad, Swad):
            segments, segment, valley = swad.recent, swad.segment, swad.valley.total
            numbers[:8] = torch.tensor(
                [task, swad.step, segment.count, _number(swad.threshold), swad.ended, swad.valley.count, 0, 0]
            )
        else:
            segments, segment, valley = swad.segments, self.segment, swad.mean
            converge = -1 if swad.converge_step is None else swad.converge_step
            averaged = 0 if swad.mean is None else 1
            numbers[:8] = torch.tensor(
                [task, self.step, segment.count, _number(swad.threshold), swad.dead, averaged, converge,
                 swad.num_averaged]
            )  # fmt: skip
        for place, kept in enumerate(segments):
            recent[place] = kept.mean
            numbers[_HEADER + 3 * place : _HEADER + 3 * place + 3] = torch.tensor([kept.steps, kept.end, kept.loss])
        empty = torch.zeros(len(like), dtype=like.dtype)
        total = segment.total if segment.count else None
        return {
            "_swad_numbers": numbers,
            "_swad_segment": empty if total is None else total,
            "_swad_recent": recent,
            "_swad_valley": empty if valley is None else valley,
        }

    def unpack(self, carried: Carried, device: torch.device) -> None:
        numbers = [float(n) for n in carried["_swad_numbers"]]
        _, step, count, threshold, over, averaged, converge, folded = numbers[:_HEADER]
        rows = carried["_swad_recent"].view(self._slots, -1)
        found = [numbers[_HEADER + 3 * i : _HEADER + 3 * i + 3] for i in range(self._slots)]
        kept = [
            Segment(rows[i].to(device), int(steps), int(end), loss) for i, (steps, end, loss) in enumerate(found)
            if steps
        ]  # fmt: skip
        segment: RunningMean[Tensor] = RunningMean()
        if count:
            segment.total, segment.count = carried["_swad_segment"].to(device, copy=True), int(count)
        valley, swad = carried["_swad_valley"].to(device, copy=True), self.swad
        limit = None if math.isnan(threshold) else threshold
        if isinstance(swad, Swad):
            swad.step, swad.segment, swad.recent, swad.threshold, swad.ended = (
                int(step), segment, kept, limit, bool(over)
            )  # fmt: skip
            if averaged:
                swad.valley.total, swad.valley.count = valley, int(averaged)
        else:
            self.step, self.segment, swad.segments, swad.threshold, swad.dead = (
                int(step), segment, kept, limit, bool(over)
            )  # fmt: skip
            swad.mean, swad.num_averaged = valley if averaged else None, int(folded)
            swad.converge_step = int(converge) if converge >= 0 else None


def _number(value: float | None) -> float:
    return math.nan if value is None else value


class AveragedModel(ClientExtension):
    """Averages a client's weights over steps, and puts the average in the place of the evaluated model.

    The loss that steers it is that of the broadcast model on the client's validation samples of the task, found where
    the client next trains; so validation counts as training time.

    Args:
        trainer: this rank's model.
        rule: numbers of the averaging.
        schedule: when models are evaluated.
        validation: a client's validation samples of a task.
        train: its training samples.
        passes: over them; the averaged model's batch-norm statistics come from what follows on the task.
        batch_size: samples per evaluation batch.
    """

    def __init__(
        self, trainer: LocalTrainer, rule: Averaging, schedule: Schedule, validation: Part, train: Part,
        passes: TaskPasses, batch_size: int,
    ) -> None:  # fmt: skip
        self._trainer, self._rule, self._schedule = trainer, rule, schedule
        self._validation, self._train, self._passes, self._batch = validation, train, passes, batch_size
        self._slots = max(min(schedule.most, max(rule.num_converge, rule.num_tolerance)), 1)
        self._task, self._average = 0, _Average(rule, self._slots)

    def initial(self) -> Carried:
        """See `ClientExtension`."""
        return _Average(self._rule, self._slots).pack(-1, self._trainer.vector.weights)

    def begin(self, client: int, round: int, carried: Carried) -> None:
        """See `ClientExtension`."""
        self._task, begun = divmod(round, self._schedule.rounds)
        self._average = self._restored(carried, self._task) or _Average(self._rule, self._slots)
        if self._schedule.due(begun):
            self._average.evaluated(self._loss(client, self._task))

    def after_step(self, num_steps: int) -> None:
        """See `ClientExtension`."""
        self._average.add(self._trainer.vector.weights)

    def end(self) -> Carried:
        """See `ClientExtension`."""
        return self._average.pack(self._task, self._trainer.vector.weights)

    def place(self, client: int, round: int, carried: Carried) -> None:
        """At the end of a task: close the last segment and take the average, with batch-norm statistics of its own."""
        task, begun = divmod(round, self._schedule.rounds)
        average = self._restored(carried, task - 1) if round and not begun else None
        if average is None:  # not the end of a task, or the client sat this one out
            return
        average.evaluated(self._loss(client, task - 1))
        self._trainer.vector.weights.copy_(average.swad.result())
        self._refresh(client, task - 1)

    def _restored(self, carried: Carried, task: int) -> _Average | None:
        if int(carried["_swad_numbers"][0]) != task:
            return None
        average = _Average(self._rule, self._slots)
        average.unpack(carried, self._trainer.vector.weights.device)
        return average

    def _loss(self, client: int, task: int) -> float:
        trainer = self._trainer
        counts = evaluate(trainer.objective, self._validation(client, task), trainer.transform, self._batch)
        return counts.loss / counts.total

    def _refresh(self, client: int, task: int) -> None:
        """Batch-norm statistics from further batches of the client's passes over the task."""
        trainer, passes = self._trainer, self._passes
        if not trainer.vector.buffers.numel():
            return
        samples = self._train(client, task)
        noise = torch.Generator().manual_seed(derive(passes.seed, "refresh", client, task) % 2**63)

        def inputs() -> Iterator[Tensor]:
            first = passes.steps * passes.rounds_per_task
            for (rows,) in passes.from_step(client, task, first, len(samples.y), self._rule.refresh_batches):
                if len(rows) > 1:
                    index = torch.from_numpy(rows).to(samples.y.device)
                    yield trainer.transform(samples.x[index], noise, True)

        refresh_batch_norm(trainer.vector.module, inputs())
