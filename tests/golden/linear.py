"""Federations of which every step is known: full batches, a linear model on data a, and a single number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import fl_parts
import numpy as np
import torch
from folders import HERE
from torch import Tensor, nn
from torch.nn import functional

from fedhpc.data.samples import Samples
from fedhpc.federated.algorithm import FederatedAlgorithm
from tests.federated.federation import Clients, Federation, federate

FOLDER = HERE / "federated"
GRID = 1e-11
CASE = json.loads((FOLDER / "linear_fedavg_repo.json").read_text())
PARTIAL = [[0, 1, 2, 3, 4], [0, 2, 4], [1, 3], [2]]
DECAY = 0.01


class FullBatches:
    """Every step sees all samples."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def batches(self, client: int, round: int, num_samples: int) -> Iterator[tuple[np.ndarray, ...]]:
        for _ in range(self.steps):
            yield (np.arange(num_samples),)

    def num_steps(self, num_samples: int) -> int:
        return self.steps


def linear_model() -> nn.Module:
    model = fl_parts.model_of(CASE["model"])
    nn.utils.vector_to_parameters(torch.tensor(CASE["initial_params"], dtype=torch.float64), model.parameters())
    return model


def data_a() -> Clients:
    return fl_parts.clients_of(FOLDER, "fl_data_a")


def linear(algorithm: FederatedAlgorithm, steps: int = 1, clients: Clients | None = None, **options: Any) -> Federation:
    """A linear model on data a, full batches, lr 0.1, weight decay 0.01, four rounds."""
    chosen = {"rounds": 4, "lr": 0.1, "weight_decay": DECAY, "batches": FullBatches(steps), **options}
    return federate(algorithm, clients=clients or data_a(), model=linear_model(), **chosen).run()


def apart(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def gradient_at(weights: Tensor, samples: Samples) -> Tensor:
    """∇f(x) + λ·x of the mean cross-entropy."""
    model = linear_model()
    nn.utils.vector_to_parameters(weights, model.parameters())
    loss = functional.cross_entropy(model(samples.x), samples.y)
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))]) + DECAY * weights


def path(f: Federation) -> list[Tensor]:
    """Broadcast model after each round."""
    return [b.vectors["weights"] for b in f.recorder.borders]


class Scalar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(1, dtype=torch.float64))
