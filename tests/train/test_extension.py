"""What clients carry: it comes back, travels by client and not by rank, and frozen weights stay."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedhpc.data.samples import Batch
from fedhpc.objectives.erm import OBJECTIVE
from fedhpc.tensors.vector import ParameterVector
from fedhpc.train.correction import Correction
from fedhpc.train.solver import LocalSolver


def parts(momentum: float = 0.9) -> tuple[nn.Module, ParameterVector, LocalSolver, list[Batch]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    vector = ParameterVector(model)
    solver = LocalSolver(
        vector, OBJECTIVE(model, vector), lambda p: torch.optim.SGD(p, lr=0.1, momentum=momentum), clip=0.5
    )
    batch = Batch(torch.randn(6, 1, 2, 2), torch.tensor([0, 1, 0, 1, 1, 0]))
    return model, vector, solver, [batch]


def ones(vector: ParameterVector) -> Correction:
    return Correction(linear=torch.ones_like(vector.weights))


@pytest.mark.parametrize("corrected", [False, True])
def test_frozen_parameters_stay_and_thaw(corrected: bool) -> None:
    _, vector, solver, batch = parts()
    before = vector.weights.clone()
    solver.freeze([0, 1])
    solver.step(batch, ones(vector) if corrected else None)
    head = vector.layout[2].start
    assert torch.equal(vector.weights[:head], before[:head])
    assert not torch.equal(vector.weights[head:], before[head:])
    solver.freeze([])
    solver.step(batch)
    assert (vector.weights[:head] != before[:head]).any()


def test_thawed_training_is_as_if_nothing_had_been_frozen() -> None:
    found: list[Tensor] = []
    for frozen_between in (False, True):
        _, vector, solver, batch = parts()
        if frozen_between:
            solver.freeze([0, 1])
            solver.freeze([])
        for _ in range(3):
            solver.step(batch)
        found.append(vector.weights.clone())
    assert torch.equal(*found)


def test_a_frozen_part_does_not_count_in_the_clipped_norm() -> None:
    found = []
    for linear in (0.0, 100.0):
        _, vector, solver, batch = parts()
        solver.freeze([0, 1])
        correction = torch.zeros_like(vector.weights)
        correction[: vector.layout[2].start] = linear
        solver.step(batch, Correction(linear=correction))
        found.append(vector.weights.clone())
    assert torch.equal(*found)


def test_an_optimizer_forgets_when_told() -> None:
    _, _, solver, batch = parts()
    solver.step(batch)
    assert solver.state()
    solver.forget()
    assert not solver.state()
