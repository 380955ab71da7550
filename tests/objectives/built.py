"""Objectives of the study over small networks, and minibatches for them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedhpc import registry
from fedhpc.data.samples import Batch
from fedhpc.models import mlp_features
from fedhpc.models.base import ModelOptions, Network
from fedhpc.objectives._domains import DomainObjective
from fedhpc.objectives.setting import NamedDraws, Setting
from fedhpc.tensors.vector import ParameterVector
from fedhpc.train.solver import LocalSolver

STUDY = ("erm", "irm", "groupdro", "mixup", "mldg", "coral", "mmd", "dann", "cdann")
ADVERSARIAL = ("dann", "cdann")
CLASSES, FEATURES = 3, 6


class WithNorm(Network):
    """A small network with live batch norm."""

    def __init__(self) -> None:
        super().__init__(FEATURES, ModelOptions())
        self.body = nn.Sequential(nn.Linear(5, FEATURES), nn.BatchNorm1d(FEATURES))
        self.classifier = nn.Linear(FEATURES, CLASSES)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x)


def network(dropout: float = 0.0) -> Network:
    torch.manual_seed(0)
    return mlp_features.MlpFeatures((5,), CLASSES, ModelOptions((7, FEATURES), dropout)).double()


def minibatches(num: int = 3, rows: int = 8, step: int = 0) -> list[Batch]:
    g = torch.Generator().manual_seed(100 + step)
    return [
        Batch(
            torch.randn(rows, 5, generator=g, dtype=torch.float64) + d,
            torch.randint(CLASSES, (rows,), generator=g),
        )
        for d in range(num)
    ]


def build(
    name: str, num: int = 3, profile: str = "paper", model: Network | None = None, seed: int = 1, **hparams: float
) -> tuple[DomainObjective, LocalSolver]:
    model = model or network()
    vector = ParameterVector(model)
    usual = {"lr": 0.01, "lr_g": 0.01, "lr_d": 0.01, "mlp_width": 8}
    setting = Setting(num, {**usual, **hparams}, profile, NamedDraws(seed))  # type: ignore[arg-type]
    torch.manual_seed(2)
    objective = registry.load("fedhpc.objectives", name).OBJECTIVE(model, vector, setting)
    objective.train()
    return objective, LocalSolver(vector, objective, objective.main_optimizer())
