"""What the tests of known bugs share: small runs, and objectives that show or dictate every gradient."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from fedhpc.data.batches import ShuffledBatches
from fedhpc.data.samples import Batch
from fedhpc.federated.algorithm import FederatedAlgorithm
from fedhpc.federated.algorithms.fedavg import FedAvg
from fedhpc.federated.algorithms.scaffold import Scaffold
from fedhpc.objectives.base import StepReport
from fedhpc.objectives.erm import Erm
from tests.federated.federation import Federation, federate, make_clients

GRID = 1e-11
UNIFORM = FedAvg(weighting="uniform")
SIZES = (5, 10, 13)
PARTIAL = [[0, 1, 2], [0, 2], [1], [0, 1]]


class Remembers(Erm):
    """ERM that keeps every gradient it computed."""

    gradients: ClassVar[list[Tensor]] = []

    def backward(self, minibatches: list[Batch]) -> StepReport:
        report = super().backward(minibatches)
        self.gradients.append(self.vector.grads.clone())
        return report


def run(algorithm: FederatedAlgorithm, **options: Any) -> Federation:
    chosen = {"clients": make_clients(SIZES), "cohorts": PARTIAL, "rounds": 4, **options}
    return federate(algorithm, **chosen).run()


def control(f: Federation, client: int, border: int = -1) -> Tensor:
    return f.recorder.borders[border].clients[client]["control"]


def assert_control_is_the_mean_gradient(epochs: int, lr_decay: float = 1.0) -> None:
    """Option 2 rebuilds the mean of the gradients along the way, whatever c, c_i, K and η of the round are."""
    for client, size in enumerate(SIZES):
        Remembers.gradients.clear()
        f = run(
            Scaffold(),
            cohorts=[[0, 1, 2], [client]],
            rounds=2,
            objective=Remembers,
            lr_decay=lr_decay,
            batches=ShuffledBatches(0, 4, epochs=epochs),
        )
        steps = epochs * -(-size // 4)
        mean = torch.stack(Remembers.gradients[-steps:]).mean(0)
        torch.testing.assert_close(control(f, client), mean, rtol=0, atol=GRID)


class Constant(Erm):
    """Every entry of the gradient is -0.5."""

    def backward(self, minibatches: list[Batch]) -> StepReport:
        self.vector.write_grads([torch.full_like(p, -0.5) for p in self.vector.parameters])
        return StepReport(torch.zeros(()))
