"""One client's work in one round, on this rank's single model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedhpc.data.batches import BatchPlan
from fedhpc.data.samples import Batch, Samples
from fedhpc.objectives.base import Objective
from fedhpc.seeding import derive
from fedhpc.tensors.streams import seed_torch
from fedhpc.tensors.vector import ParameterVector
from fedhpc.train.correction import Correction
from fedhpc.train.solver import LocalSolver

Transform = Callable[[Tensor, "torch.Generator | None", bool], Tensor]
"""(raw samples [n, ...], generator of the augmentation's stream, train?) -> model input."""


@dataclass(frozen=True)
class LocalSettings:
    """How clients train.

    Attributes:
        seed: of the run; streams are derived from it by client and round.
        lr: learning rate of round 0.
        lr_decay: factor per round.
        weight_decay: λ of the local objective (the optimizer applies it; full gradients add it too).
    """

    seed: int
    lr: float
    lr_decay: float = 1.0
    weight_decay: float = 0.0

    def lr_of(self, round: int) -> float:
        """Learning rate of a round, `lr · lr_decay^round`."""
        return self.lr * self.lr_decay**round


class LocalTrainer:
    """The model of this rank and all it takes to train it; clients use it one after another.

    Nothing of one client reaches the next: weights and buffers are set before each training, the optimizer is
    reset, and the random streams (batches, augmentation, dropout) are named by client and round.

    Args:
        vector: the model's weights.
        objective: what a step minimises.
        solver: takes the steps.
        transform: raw samples to model input.
        batches: which samples form a step.
        settings: how clients train.
        environments: the environments of a client's minibatches in a step, where those are of one environment each.

    Attributes:
        after_step: called with the number of local steps taken in this round, after each; None by default.
    """

    def __init__(
        self,
        vector: ParameterVector,
        objective: Objective,
        solver: LocalSolver,
        transform: Transform,
        batches: BatchPlan,
        settings: LocalSettings,
        environments: Callable[[int], Sequence[int]] | None = None,
    ) -> None:
        self.environments = environments
        self.after_step: Callable[[int], None] | None = None
        self.vector = vector
        self.objective = objective
        self.solver = solver
        self.transform = transform
        self.batches = batches
        self.settings = settings

    def begin(
        self, client: int, round: int, samples: Samples, weights: Tensor, buffers: Tensor, relative_size: float
    ) -> LocalTraining:
        """Put the broadcast model in place for one client and return its training.

        Args:
            client: whose samples these are.
            round: rounds done so far.
            samples: the client's training samples.
            weights: [num_weights] where it starts.
            buffers: [num_buffer_values] batch-norm statistics it starts from.
            relative_size: w_i = N·n_i/Σn, 1 for a client of average size.
        """
        self.vector.weights.copy_(weights)
        self.vector.buffers.copy_(buffers)
        self.solver.reset(self.settings.lr_of(round))
        seed_torch(derive(self.settings.seed, "dropout", client, round))
        self.objective.train()
        return LocalTraining(self, client, round, samples, relative_size)

    def mean_gradient(self, samples: Samples, batch_size: int = 256) -> Tensor:
        """[num_weights] gradient of the mean cross-entropy over all samples at the current weights.

        Samples pass in batches, without augmentation and in evaluation mode, so that buffers stay.
        """
        total = torch.zeros_like(self.vector.weights)
        self.objective.eval()
        for start in range(0, len(samples.y), batch_size):
            y = samples.y[start : start + batch_size]
            scores = self.objective.predict(self.transform(samples.x[start : start + batch_size], None, False))
            self.vector.zero_grads()
            functional.cross_entropy(scores, y).backward()
            total.add_(self.vector.grads, alpha=len(y) / len(samples.y))
        self.objective.train()
        return total


class LocalTraining:
    """What a federated algorithm sees of one client in one round.

    Attributes:
        client: its id.
        round: rounds done so far; `lr` is this round's.
        num_samples: size of its training set, n_i.
        relative_size: w_i = N·n_i/Σn.
        num_steps: local steps actually taken (0 before `train`), K_i.
        lr: learning rate of this round, η_t.
        first_lr: learning rate of round 0, η_0.
    """

    def __init__(self, trainer: LocalTrainer, client: int, round: int, samples: Samples, relative_size: float) -> None:
        self._trainer = trainer
        self._samples = samples
        self.client = client
        self.round = round
        self.num_samples = len(samples.y)
        self.relative_size = relative_size
        self.num_steps = 0
        self.lr = trainer.settings.lr_of(round)
        self.first_lr = trainer.settings.lr
        self._loss: Tensor | None = None

    def train(self, correction: Correction | None = None) -> Tensor:
        """Take this round's local steps; returns the weights y_i (a view that the next client overwrites)."""
        trainer = self._trainer
        noise = torch.Generator().manual_seed(derive(trainer.settings.seed, "augment", self.client, self.round) % 2**63)
        places = trainer.environments(self.client) if trainer.environments else None
        for positions in trainer.batches.batches(self.client, self.round, self.num_samples):
            of: Sequence[int | None] = places or [None] * len(positions)
            batches = [self._batch(p, noise, e) for p, e in zip(positions, of, strict=True)]
            report = trainer.solver.step(batches, correction)
            if report.skip:
                continue
            self._loss = report.loss if self._loss is None else self._loss + report.loss
            self.num_steps += 1
            if trainer.after_step is not None:
                trainer.after_step(self.num_steps)
        return trainer.vector.weights

    def full_gradient(self) -> Tensor:
        """[num_weights] gradient of the local objective on all local samples at the current weights, with λ·y."""
        trainer = self._trainer
        return trainer.mean_gradient(self._samples).add_(trainer.vector.weights, alpha=trainer.settings.weight_decay)

    @property
    def mean_loss(self) -> float:
        """Loss averaged over the local steps; NaN before any."""
        return float(self._loss) / self.num_steps if self._loss is not None else float("nan")

    def _batch(self, positions: np.ndarray, noise: torch.Generator, environment: int | None) -> Batch:
        index = torch.from_numpy(positions).to(self._samples.y.device)
        x = self._trainer.transform(self._samples.x[index], noise, True)
        return Batch(x, self._samples.y[index], environment)
