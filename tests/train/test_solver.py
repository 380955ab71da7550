"""One local step is y ← y - η·(clip(g + L) + λ·y + T), with every term in its place."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor, nn

from fedhpc.data.samples import Batch
from fedhpc.objectives.base import MAIN, Objective, OptimizerGroup, StepReport
from fedhpc.tensors.vector import ParameterVector
from fedhpc.train.correction import Correction
from fedhpc.train.solver import LocalSolver

ETA, DECAY = 0.1, 0.01


class Given(Objective):
    """Leaves the gradient it was given, for some of the parameters."""

    def __init__(self, model: nn.Module, vector: ParameterVector, gradient: Tensor, used: int = 2) -> None:
        super().__init__(model, vector)
        self.gradient, self.used = gradient, used
        self.report = StepReport(torch.zeros(()))
        self.begun = 0

    def begin(self) -> None:
        self.begun += 1

    def backward(self, minibatches: list[Batch]) -> StepReport:
        parts = [self.gradient[s.start : s.stop].view(s.shape) for s in self.vector.layout]
        self.vector.write_grads([p if i < self.used else None for i, p in enumerate(parts)])
        return self.report

    def predict(self, x: Tensor) -> Tensor:
        raise AssertionError


class WithOwn(Given):
    """Has a parameter and an optimizer of its own, as adversarial objectives do."""

    def __init__(self, model: nn.Module, vector: ParameterVector, gradient: Tensor) -> None:
        super().__init__(model, vector, gradient)
        self.own = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def optimizers(self) -> dict[str, OptimizerGroup]:
        return {"own": OptimizerGroup([self.own], functools.partial(torch.optim.Adam, lr=0.5))}

    def backward(self, minibatches: list[Batch]) -> StepReport:
        self.own.grad = torch.ones_like(self.own)
        return super().backward(minibatches)


def setup(
    used: int = 2, clip: float | None = None, optimizer: object = None, scale: float = 1.0, kind: type[Given] = Given
) -> tuple[ParameterVector, Given, LocalSolver]:
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    vector = ParameterVector(model)
    gradient = torch.randn(8, generator=torch.Generator().manual_seed(5), dtype=torch.float64) * scale
    objective = kind(model, vector, gradient, used) if kind is Given else kind(model, vector, gradient)  # type: ignore[call-arg]
    make = optimizer or functools.partial(torch.optim.SGD, lr=ETA, weight_decay=DECAY)
    return vector, objective, LocalSolver(vector, objective, make, clip)  # type: ignore[arg-type]


def clipped(v: Tensor, bound: float) -> Tensor:
    return v * min(1.0, bound / (float(v.norm()) + 1e-6))


@pytest.mark.parametrize("clip", [None, 0.5, 1e6])
def test_every_term_is_in_its_place(clip: float | None) -> None:
    vector, objective, solver = setup(clip=clip)
    y, anchor = vector.weights.clone(), torch.linspace(-1, 1, 8, dtype=torch.float64)
    linear = torch.linspace(0, 0.3, 8, dtype=torch.float64)
    solver.step([], Correction(linear, 0.7, anchor, 0.2))
    inside = objective.gradient + linear + 0.7 * (y - anchor)
    inside = inside if clip is None else clipped(inside, clip)
    torch.testing.assert_close(vector.weights, y - ETA * (inside + DECAY * y + 0.2 * y), rtol=0, atol=1e-15)


def test_weight_decay_is_never_inside_the_clip() -> None:
    vector, objective, solver = setup(clip=1e-3)
    y = vector.weights.clone()
    solver.step([])
    torch.testing.assert_close(vector.weights, y - ETA * (clipped(objective.gradient, 1e-3) + DECAY * y))


def test_a_small_gradient_is_not_scaled_up() -> None:
    vector, objective, solver = setup(clip=10.0, scale=1e-3)
    y = vector.weights.clone()
    solver.step([])
    assert torch.equal(vector.weights, y - ETA * (objective.gradient + DECAY * y))


def test_the_proximal_term_pulls_from_where_the_step_begins() -> None:
    vector, _, solver = setup()
    anchor = vector.weights.clone()
    before = [anchor]
    for _ in range(3):
        solver.step([], Correction(pull=0.5, anchor=anchor))
        before.append(vector.weights.clone())
    free_vector, _, free = setup()
    free.step([], Correction(pull=0.0, anchor=anchor))
    assert torch.equal(before[1], free_vector.weights)  # at y = x there is no pull
    free.step([])
    pulled = before[2] - free_vector.weights
    torch.testing.assert_close(pulled, -ETA * 0.5 * (before[1] - anchor), rtol=1e-9, atol=1e-15)


def test_a_pull_without_an_anchor_is_an_error_of_ours() -> None:
    _, _, solver = setup()
    with pytest.raises(AssertionError, match="anchor"):
        solver.step([], Correction(pull=0.5))


@pytest.mark.parametrize(
    "optimizer",
    [
        functools.partial(torch.optim.SGD, lr=ETA, weight_decay=0.5),
        functools.partial(torch.optim.SGD, lr=ETA, momentum=0.9, weight_decay=0.5),
        functools.partial(torch.optim.Adam, lr=ETA, weight_decay=0.5),
        functools.partial(torch.optim.AdamW, lr=ETA, weight_decay=0.5),
    ],
    ids=["sgd", "momentum", "adam", "adamw"],
)
def test_a_parameter_without_gradient_is_skipped_not_fed_a_zero(optimizer: object) -> None:
    vector, objective, solver = setup(used=1, optimizer=optimizer)
    y = vector.weights.clone()
    solver.step([])
    assert (vector.weights[:6] != y[:6]).all()
    assert torch.equal(vector.weights[6:], y[6:])
    objective.used = 2  # and its moments were not touched either
    solver.step([])
    alone_vector, alone, alone_solver = setup(optimizer=optimizer)
    alone_vector.weights.copy_(y)
    alone_solver.step([])
    torch.testing.assert_close(vector.weights[6:], alone_vector.weights[6:])
    assert alone is not objective


def test_a_correction_reaches_parameters_without_gradient() -> None:
    vector, _, solver = setup(used=1)
    y = vector.weights.clone()
    linear = torch.full((8,), 0.3, dtype=torch.float64)
    solver.step([], Correction(linear=linear))
    torch.testing.assert_close(vector.weights[6:], y[6:] - ETA * (0.3 + DECAY * y[6:]))


def test_gradients_of_the_step_before_do_not_linger() -> None:
    vector, objective, solver = setup()
    solver.step([])
    y = vector.weights.clone()
    objective.gradient = torch.zeros(8, dtype=torch.float64)
    solver.step([])
    torch.testing.assert_close(vector.weights, y - ETA * DECAY * y)


def test_a_skipped_step_moves_nothing() -> None:
    vector, objective, solver = setup()
    objective.report = StepReport(torch.zeros(()), skip=True)
    y = vector.weights.clone()
    assert solver.step([], Correction(linear=torch.ones(8, dtype=torch.float64))).skip
    assert torch.equal(vector.weights, y)


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_a_reset_forgets_moments_and_takes_the_rounds_rate(name: str) -> None:
    make = {
        "momentum": functools.partial(torch.optim.SGD, lr=ETA, momentum=0.9),
        "adam": functools.partial(torch.optim.Adam, lr=ETA),
    }[name]
    vector, objective, solver = setup(optimizer=make)
    y = vector.weights.clone()

    def round_of(lr: float, steps: int = 3) -> Tensor:
        vector.weights.copy_(y)
        solver.reset(lr)
        for _ in range(steps):
            solver.step([])
        return vector.weights.clone()

    first, again, slower = round_of(ETA), round_of(ETA), round_of(ETA / 2)
    assert torch.equal(first, again)
    torch.testing.assert_close(slower - y, (first - y) / 2)
    assert objective.begun == 3
    # Without the reset the second round would differ, so the equality above says something.
    vector.weights.copy_(y)
    for _ in range(3):
        solver.step([])
    assert not torch.equal(vector.weights, slower)


def test_the_objective_says_which_optimizers_step_and_forget() -> None:
    vector, objective, solver = setup(kind=WithOwn)
    y = vector.weights.clone()
    objective.report = StepReport(torch.zeros(()), steps=("own",))
    solver.step([], Correction(linear=torch.ones(8, dtype=torch.float64)))
    assert torch.equal(vector.weights, y)
    assert torch.allclose(objective.own, torch.full((3,), 0.5, dtype=torch.float64))  # type: ignore[attr-defined]
    objective.report = StepReport(torch.zeros(()), steps=(MAIN,))
    solver.step([])
    assert not torch.equal(vector.weights, y)
    assert torch.allclose(objective.own, torch.full((3,), 0.5, dtype=torch.float64))  # type: ignore[attr-defined]
    assert any(key.startswith("own/0/") for key in solver.state())
    objective.report = StepReport(torch.zeros(()), steps=(), resets=("own",))
    solver.step([])
    assert not any(key.startswith("own/") for key in solver.state())


def test_state_of_the_optimizers_comes_back() -> None:
    make = functools.partial(torch.optim.Adam, lr=ETA)
    vector, _, solver = setup(optimizer=make)
    for _ in range(2):
        solver.step([])
    saved, y = {k: v.clone() for k, v in solver.state().items()}, vector.weights.clone()
    solver.step([])
    expected = vector.weights.clone()
    other_vector, _, other = setup(optimizer=make)
    other_vector.weights.copy_(y)
    other.load_state(saved)
    other.step([])
    assert torch.equal(other_vector.weights, expected)
