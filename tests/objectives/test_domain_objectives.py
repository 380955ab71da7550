"""The nine objectives of the domain-generalization study: what holds whatever the numbers."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedhpc import registry
from fedhpc.data.samples import Batch
from fedhpc.errors import ConfigError
from fedhpc.models._layers import deepen_classifier
from fedhpc.objectives.setting import NamedDraws, Setting, TorchDraws
from fedhpc.tensors.vector import ParameterVector
from fedhpc.train.solver import LocalSolver
from tests.objectives.built import ADVERSARIAL, CLASSES, STUDY, build, minibatches, network


@pytest.mark.parametrize("profile", ["paper", "head"])
@pytest.mark.parametrize("name", STUDY)
def test_training_lowers_the_loss(name: str, profile: str) -> None:
    objective, solver = build(name, profile=profile, n_meta_test=1, mmd_gamma=0.1, **{"lambda": 0.1})
    data = [Batch(b.x, b.x[:, :CLASSES].argmax(1)) for b in minibatches(rows=16)]
    x, y = torch.cat([b.x for b in data]), torch.cat([b.y for b in data])

    def loss() -> float:
        with torch.no_grad():
            return float(functional.cross_entropy(objective.predict(x), y))

    before = loss()
    for _ in range(40):
        report = solver.step(data)
        assert all(torch.isfinite(value) for value in report.metrics.values())
    assert loss() < before - 0.05


@pytest.mark.parametrize("name", STUDY)
def test_a_new_local_training_forgets_the_last_one(name: str) -> None:
    """Clients take turns on one objective: nothing of the first may reach the second."""

    def train(solver: LocalSolver, weights: Tensor) -> Tensor:
        solver._vector.weights.copy_(weights)
        solver.reset(0.01)
        for step in range(5):
            solver.step(minibatches(step=step))
        return solver._vector.weights.clone()

    _, solver = build(name, irm_penalty_anneal_iters=2)
    start = solver._vector.weights.clone()
    first = train(solver, start)
    assert torch.equal(train(solver, start), first)


@pytest.mark.parametrize("name", STUDY)
def test_a_checkpoint_holds_everything(name: str) -> None:
    objective, solver = build(name, irm_penalty_anneal_iters=2)
    for step in range(3):
        solver.step(minibatches(step=step))
    other, resumed = build(name, irm_penalty_anneal_iters=2)
    other.model.load_state_dict(objective.model.state_dict())
    other.load_own_state({k: v.clone() for k, v in objective.own_state().items()})
    resumed.load_state({k: v.clone() for k, v in solver.state().items()})
    for step in range(3, 6):
        for s in (solver, resumed):
            s.step(minibatches(step=step))
    assert torch.equal(solver._vector.weights, resumed._vector.weights)
    with pytest.raises(ValueError, match="saved state has other entries"):
        other.load_own_state({"step": torch.tensor(0), "else": torch.zeros(1)})


@pytest.mark.parametrize(
    ("name", "num", "off"),
    [
        *((name, 1, {}) for name in ("groupdro", "mixup", "coral", "mmd", "dann", "cdann")),
        *((name, 3, {"mmd_gamma": 0.0}) for name in ("coral", "mmd")),
        *((name, 3, {"lambda": 0.0}) for name in ADVERSARIAL),
        ("groupdro", 3, {"groupdro_eta": 0.0}),
    ],
)
def test_erm_in_disguise_says_so(name: str, num: int, off: dict[str, float]) -> None:
    objective, _ = build(name, num, "head", d_steps_per_g_step=1, beta1=0.9, **off)
    assert any("is ERM" in remark for remark in type(objective).remarks(objective.setting))
    objective.vector.zero_grads()
    report = objective.backward(minibatches(num))
    if name in ADVERSARIAL:
        assert report.steps == ("main",)  # the first step is the model's
    found = objective.vector.grads.clone()
    plain, _ = build("erm", num)
    plain.vector.zero_grads()
    plain.backward(minibatches(num))
    torch.testing.assert_close(found, plain.vector.grads, rtol=0, atol=1e-14)
    assert type(objective).remarks(Setting(2)) == []


def test_remarks_of_the_other_corners() -> None:
    def remarks(name: str, num: int, profile: str, **hparams: float) -> list[str]:
        return registry.load("fedhpc.objectives", name).OBJECTIVE.remarks(Setting(num, hparams, profile))

    assert remarks("mldg", 2, "head") == ["mldg trains nothing: 2 training environments, n_meta_test 2"]
    assert remarks("mldg", 2, "head", n_meta_test=1) == remarks("mldg", 2, "paper") == []
    assert "tests on what it trained on" in remarks("mldg", 1, "paper")[0]
    assert "trains nothing" in remarks("mldg", 1, "head", n_meta_test=1)[0]
    assert "grad_penalty acts only on" in remarks("dann", 3, "paper", grad_penalty=1.0)[0]
    assert remarks("dann", 3, "head", grad_penalty=1.0) == remarks("erm", 1, "head") == []
    assert "nothing to be invariant to" in remarks("irm", 1, "paper")[0]


def test_groupdro_weighs_by_environment_not_by_place() -> None:
    data = minibatches(2)
    objective, _ = build("groupdro", 4, groupdro_eta=1.0)
    objective.backward([Batch(data[0].x, data[0].y, 3), Batch(data[1].x, data[1].y, 1)])
    assert objective.q.sum() == pytest.approx(1)
    assert objective.q[0] == objective.q[2] < min(objective.q[1], objective.q[3])
    with pytest.raises(ConfigError, match="comes from environment 4, but it was built for 4"):
        objective.backward([Batch(data[0].x, data[0].y, 4)])


def test_coral_refuses_single_rows() -> None:
    objective, _ = build("coral")
    with pytest.raises(ConfigError, match="at least 2 samples"):
        objective.backward(minibatches(rows=1))


@pytest.mark.parametrize("name", ["coral", "mmd", "dann", "cdann"])
def test_distances_see_features_after_dropout(name: str) -> None:
    model = network()
    model.dropout = nn.Dropout(0.999)
    objective, _ = build(name, model=model)
    torch.manual_seed(0)
    assert (objective.embed(minibatches()[0].x) == 0).double().mean() > 0.8
    torch.manual_seed(0)
    expected = objective.classify(objective.embed(minibatches()[0].x))
    torch.manual_seed(0)
    assert torch.equal(objective.model(minibatches()[0].x), expected)


@pytest.mark.parametrize("name", STUDY)
def test_a_nonlinear_classifier_and_frozen_weights_work(name: str) -> None:
    model = network()
    deepen_classifier(model)
    model.body.input.weight.requires_grad_(False)
    frozen = model.body.input.weight.clone()
    objective, solver = build(name, model=model)
    for step in range(3):
        solver.step(minibatches(step=step))
    assert torch.equal(model.body.input.weight, frozen)
    assert objective.predict(minibatches()[0].x).shape == (8, CLASSES)


def test_defaults_serve_a_federated_client() -> None:
    """Built as the engine does, with neither a setting nor environments, one mixed minibatch per step."""
    for name in STUDY:
        model = network()
        vector = ParameterVector(model)
        objective = registry.load("fedhpc.objectives", name).OBJECTIVE(model, vector)
        solver = LocalSolver(vector, objective, functools.partial(torch.optim.SGD, lr=0.1))
        solver.reset(0.1)
        before = vector.weights.clone()
        torch.manual_seed(3)
        solver.step(minibatches(1))
        assert not torch.equal(vector.weights, before), name


@dataclass(frozen=True)
class Backwards:
    """Draws that reverse and always mix half and half."""

    def permutation(self, step: int, n: int) -> list[int]:
        return list(range(n))[::-1]

    def mixing(self, step: int, pair: int, alpha: float) -> float:
        return 0.5


def test_mixup_of_unequal_minibatches() -> None:
    objective, _ = build("mixup", 2)
    objective.setting = Setting(2, draws=Backwards())
    a, b = minibatches(1, 8)[0], minibatches(1, 3, step=1)[0]
    found = objective.backward([a, b]).loss
    scores = objective.model((a.x[:3] + b.x) / 2)
    expected = (functional.cross_entropy(scores, a.y[:3]) + functional.cross_entropy(scores, b.y)) / 2
    torch.testing.assert_close(found, expected.detach())


def test_named_draws_depend_on_the_step_only() -> None:
    draws = NamedDraws(5)
    later = [draws.permutation(9, 6), draws.mixing(9, 1, 0.2)]
    assert [NamedDraws(5).permutation(9, 6), NamedDraws(5).mixing(9, 1, 0.2)] == later
    assert NamedDraws(6).permutation(9, 6) != draws.permutation(9, 6)
    assert sorted(draws.permutation(3, 6)) == list(range(6))
    mixing = torch.tensor([[d.mixing(s, 0, 0.5) for s in range(2000)] for d in (draws, TorchDraws())])
    assert ((mixing >= 0) & (mixing <= 1)).all()
    # Beta(a, a): mean 1/2, variance 1/(4(2a + 1)) = 1/8.
    torch.testing.assert_close(mixing.mean(1), torch.full((2,), 0.5), rtol=0, atol=0.04)
    torch.testing.assert_close(mixing.var(1), torch.full((2,), 0.125), rtol=0.1, atol=0)


def test_objectives_are_deep_copyable_state() -> None:
    """The state that begins every training is the one before the first step, also for the discriminator."""
    objective, solver = build("dann")
    solver.reset(0.01)
    first = copy.deepcopy(objective.own_state())
    for step in range(4):
        solver.step(minibatches(step=step))
    assert any(not torch.equal(first[k], v) for k, v in objective.own_state().items())
    solver.reset(0.01)
    assert all(torch.equal(first[k], v) for k, v in objective.own_state().items())
