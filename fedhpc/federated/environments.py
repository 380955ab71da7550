"""Accuracy of the global model on parts of environments, above all on those that no client has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedhpc.data.samples import Samples
from fedhpc.train.evaluate import evaluate

if TYPE_CHECKING:
    from fedhpc.federated.records import Sink
    from fedhpc.federated.state import Progress
    from fedhpc.train.local import LocalTrainer


@dataclass(frozen=True, eq=False)
class Part:
    """Some samples of one environment.

    Attributes:
        what: name of the record: the role that the environment and this part of it play.
        environment: its number in the dataset.
        indices: int64 indices into the dataset.
    """

    what: str
    environment: int
    indices: np.ndarray


class EnvironmentExam:
    """Asks about every part at every evaluation; an `Exam`.

    The samples are cut into pieces of `batch_size`, which do not depend on the number of ranks, and the ranks take
    turns; counts of right answers add exactly, so the accuracies are the same on any number of ranks.

    Args:
        parts: what is asked.
        read: indices into the dataset to raw samples on this rank's device.
        batch_size: samples per forward pass.
    """

    def __init__(self, parts: Sequence[Part], read: Callable[[np.ndarray], Samples], batch_size: int) -> None:
        self._parts, self._read, self._batch_size = parts, read, batch_size
        self._pieces = [
            (number, part.indices[start : start + batch_size])
            for number, part in enumerate(parts)
            for start in range(0, len(part.indices), batch_size)
        ]

    def evaluate(self, trainer: LocalTrainer, share: int, shares: int) -> list[int]:
        """Right answers per part among the pieces of one rank."""
        right = [0] * len(self._parts)
        for number, indices in self._pieces[share::shares]:
            counts = evaluate(trainer.objective, self._read(indices), trainer.transform, self._batch_size)
            right[number] += counts.correct
        return right

    def record(self, sink: Sink, progress: Progress, answers: Sequence[list[int]]) -> None:
        """Write the accuracy on each part; nothing for one without samples."""
        for part, right in zip(self._parts, np.sum(answers, axis=0), strict=True):
            if len(part.indices):
                value = int(right) / len(part.indices)
                at = (progress.round, progress.seconds_train)
                sink.record(part.what, value, "fraction", *at, environment=part.environment)
