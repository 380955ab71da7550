"""What every local objective keeps, whichever files lie in fedhpc/objectives: a new one is tested as it is."""

from __future__ import annotations

import functools
import inspect
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from fedhpc import registry
from fedhpc.data.samples import Batch
from fedhpc.models.base import ModelOptions
from fedhpc.objectives.base import MAIN, Objective
from fedhpc.objectives.setting import Setting
from fedhpc.tensors.vector import ParameterVector
from fedhpc.train.solver import LocalSolver

PACKAGE = "fedhpc.objectives"
FEATURES, CLASSES = 6, 3


@pytest.fixture(params=registry.names(PACKAGE))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def kind_of(name: str) -> type[Objective]:
    return registry.load(PACKAGE, name).OBJECTIVE


def num_minibatches(name: str) -> int:
    """One per environment where it is about environments, else what a step draws."""
    kind = kind_of(name)
    return kind.minibatches_per_step if kind.minibatches_per_step > 1 else max(2, kind.min_environments)


def make(name: str, seed: int = 0, dropout: float = 0.0) -> Objective:
    torch.manual_seed(seed)
    options = ModelOptions(hidden=(8,), dropout=dropout)
    model = registry.load("fedhpc.models", "mlp").MODEL((FEATURES, 1, 1), CLASSES, options).double()
    vector, kind = ParameterVector(model), kind_of(name)
    if "setting" in inspect.signature(kind).parameters:
        return kind(model, vector, Setting(num_environments=num_minibatches(name)))  # type: ignore[call-arg]
    return kind(model, vector)


def minibatches(name: str, seed: int = 0, n: int = 9) -> list[Batch]:
    noise = torch.Generator().manual_seed(seed)
    found = []
    for environment in range(num_minibatches(name)):
        x = torch.randn(n, FEATURES, 1, 1, generator=noise, dtype=torch.float64) + environment
        found.append(Batch(x, torch.arange(n) % CLASSES))
    return found


def solver_of(objective: Objective, lr: float = 0.05) -> LocalSolver:
    return LocalSolver(objective.vector, objective, functools.partial(torch.optim.SGD, lr=lr))


def steps(objective: Objective, solver: LocalSolver, name: str, number: int = 3, begin: int = 0) -> list[Tensor]:
    """Take steps on dictated minibatches with dictated draws; the weights after each."""
    found = []
    for step in range(begin, begin + number):
        torch.manual_seed(step)
        solver.step(minibatches(name, step))
        found.append(objective.vector.weights.clone())
    return found


def test_is_an_objective_of_its_file_that_says_what_it_is(name: str) -> None:
    kind = kind_of(name)
    assert issubclass(kind, Objective)
    assert kind.__module__ == f"{PACKAGE}.{name}"
    assert kind.__doc__
    assert kind.minibatches_per_step >= 1
    assert kind.min_environments >= 1
    assert not inspect.isabstract(kind)


def test_backward_fills_gradients_and_never_steps(name: str) -> None:
    objective = make(name)
    objective.begin()
    vector = objective.vector
    weights = vector.weights.clone()
    vector.zero_grads()
    report = objective.backward(minibatches(name))
    assert torch.equal(vector.weights, weights)
    assert torch.isfinite(vector.grads).all()
    assert not report.skip
    assert report.loss.shape == ()
    assert torch.isfinite(report.loss)
    assert not report.loss.requires_grad
    assert not any(m.requires_grad for m in report.metrics.values())
    assert set(report.steps) | set(report.resets) <= {MAIN, *objective.optimizers()}
    if MAIN in report.steps:
        assert vector.grads.any()


def test_gradients_stay_views_of_the_flat_vector(name: str) -> None:
    objective = make(name)
    objective.begin()
    solver = solver_of(objective)
    steps(objective, solver, name)
    vector = objective.vector
    for parameter, slot in zip(vector.parameters, vector.layout, strict=True):
        assert parameter.grad is not None
        assert parameter.grad.data_ptr() == vector.grads[slot.start :].data_ptr()
        assert parameter.data_ptr() == vector.weights[slot.start :].data_ptr()
        assert parameter.requires_grad


def test_same_streams_same_steps(name: str) -> None:
    runs = []
    for _ in range(2):
        objective = make(name, dropout=0.5)
        objective.begin()
        solver = solver_of(objective)
        runs.append(steps(objective, solver, name))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))
    assert torch.isfinite(runs[0][-1]).all()


def test_nothing_of_one_training_reaches_the_next(name: str) -> None:
    objective = make(name)
    solver, start = solver_of(objective), objective.vector.weights.clone()
    trainings = []
    for _ in range(3):
        objective.vector.weights.copy_(start)
        solver.reset(0.05)
        trainings.append(steps(objective, solver, name))
    for other in trainings[1:]:
        assert all(torch.equal(a, b) for a, b in zip(trainings[0], other, strict=True))


def test_its_state_is_all_the_next_step_needs(name: str) -> None:
    whole = make(name)
    solver = solver_of(whole)
    solver.reset(0.05)
    steps(whole, solver, name, 2)
    own = {k: v.clone() for k, v in whole.own_state().items()}
    moments = {k: v.clone() for k, v in solver.state().items()}
    weights = whole.vector.weights.clone()
    expected = steps(whole, solver, name, 2, begin=2)
    other = make(name, seed=99)
    second = solver_of(other)
    second.reset(0.05)
    other.vector.weights.copy_(weights)
    other.load_own_state(own)
    second.load_state(moments)
    assert all(torch.equal(a, b) for a, b in zip(steps(other, second, name, 2, begin=2), expected, strict=True))


def test_state_of_another_objective_is_refused(name: str) -> None:
    objective = make(name)
    with pytest.raises(ValueError, match=r"saved state|entries"):
        objective.load_own_state({**objective.own_state(), "nobody.weight": torch.zeros(1)})


def test_prediction_scores_every_class_and_changes_nothing(name: str) -> None:
    objective = make(name, dropout=0.5)
    objective.begin()
    objective.eval()
    before = {k: v.clone() for k, v in objective.state_dict().items()}
    stream = torch.get_rng_state()
    with torch.no_grad():
        first, again = (objective.predict(minibatches(name)[0].x) for _ in range(2))
    assert first.shape == (9, CLASSES)
    assert torch.equal(first, again)
    assert torch.equal(torch.get_rng_state(), stream)
    assert all(torch.equal(objective.state_dict()[k], v) for k, v in before.items())


def test_frozen_layers_stay_frozen(name: str) -> None:
    torch.manual_seed(0)
    model = registry.load("fedhpc.models", "mlp").MODEL((FEATURES, 1, 1), CLASSES, ModelOptions(hidden=(8, 8))).double()
    model.body[0].weight.requires_grad_(False)
    kept = model.body[0].weight.clone()
    vector, kind = ParameterVector(model), kind_of(name)
    if "setting" in inspect.signature(kind).parameters:
        objective = kind(model, vector, Setting(num_environments=num_minibatches(name)))  # type: ignore[call-arg]
    else:
        objective = kind(model, vector)
    solver = solver_of(objective)
    solver.reset(0.05)
    steps(objective, solver, name)
    assert torch.equal(model.body[0].weight, kept)


def test_it_learns(name: str) -> None:
    objective = make(name)
    solver, fixed = solver_of(objective), minibatches(name)
    solver.reset(0.05)
    torch.manual_seed(0)
    losses = [float(solver.step(fixed).loss) for _ in range(40)]
    assert max(losses[-4:]) < max(losses[:4])


def test_is_cheap_to_list() -> None:
    code = f"import sys; from fedhpc.registry import names; sys.exit(not names('{PACKAGE}') or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
