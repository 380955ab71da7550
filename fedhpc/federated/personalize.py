"""Adapt a model to a client before it is evaluated there, on the client's own training samples only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedhpc.data.samples import Samples
from fedhpc.objectives.proto import embed, proto_scores, prototypes
from fedhpc.train.local import LocalTrainer

Predictor = Callable[[Tensor], Tensor]
"""Model input [n, ...] to class scores [n, classes]."""


class Personalizer(Protocol):
    """Turns the evaluated model, which is in place in the trainer, into one client's predictor."""

    def predictor(self, trainer: LocalTrainer, train: Samples) -> Predictor:
        """May move the trainer's weights: they are set anew for every client.

        Args:
            trainer: holds the evaluated model.
            train: the client's own training samples.
        """


@dataclass(frozen=True)
class AdaptByGradient:
    """J full-batch gradient steps y ← y - β·clip(∇f_i(y)) on the whole local training set, without weight decay.

    Attributes:
        lr: β.
        steps: J.
        clip: bound of the gradient's norm, as in training; None for no clipping.
        batch_size: samples per forward pass; the gradient is of the full batch.
    """

    lr: float
    steps: int
    clip: float | None = None
    batch_size: int = 256

    def predictor(self, trainer: LocalTrainer, train: Samples) -> Predictor:
        """See `Personalizer`."""
        for _ in range(self.steps):
            gradient = trainer.mean_gradient(train, self.batch_size)
            if self.clip is not None:
                norm = torch.linalg.vector_norm(gradient)
                gradient.mul_(torch.clamp(self.clip / (norm + 1e-6), max=1.0))
            trainer.vector.weights.sub_(gradient, alpha=self.lr)
        return trainer.objective.predict


@dataclass(frozen=True)
class NearestPrototype:
    """Prototypes from the whole local training set; a class scores minus the squared distance to its prototype.

    A class without training samples scores minus infinity. Classes keep their ids, whatever the test set lacks.

    Attributes:
        num_classes: all classes of the dataset.
        batch_size: samples per forward pass.
    """

    num_classes: int
    batch_size: int = 256

    def predictor(self, trainer: LocalTrainer, train: Samples) -> Predictor:
        """See `Personalizer`."""
        trainer.objective.eval()
        with torch.no_grad():
            parts = [
                embed(trainer.objective, trainer.transform(train.x[s : s + self.batch_size], None, False))
                for s in range(0, len(train.y), self.batch_size)
            ]
        means, classes = prototypes(torch.cat(parts), train.y)

        def predict(x: Tensor) -> Tensor:
            embeddings = embed(trainer.objective, x)
            scores = embeddings.new_full((len(embeddings), self.num_classes), float("-inf"))
            scores[:, classes] = proto_scores(embeddings, means)
            return scores

        return predict
