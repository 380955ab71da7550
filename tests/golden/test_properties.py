"""The fifteen properties of the federated rules, with their numbers, on the default grid of exact sums.

P1 to P6 hold to 1e-16 in plain float64; on the grid of 40 bits they hold within 1e-11. That any number of ranks gives
the same bits (the other half of P15) is shown by tests/mpi; P8 to P11 are in `test_quadratics`.
"""

from __future__ import annotations

import json

import fl_parts
import pytest
import torch
from linear import (
    CASE,
    DECAY,
    FOLDER,
    GRID,
    PARTIAL,
    FullBatches,
    Scalar,
    apart,
    data_a,
    gradient_at,
    linear,
    linear_model,
    path,
)
from torch import Tensor, nn

from fedhpc.data.samples import Batch, Samples
from fedhpc.federated.algorithm import FederatedAlgorithm, Vectors
from fedhpc.federated.algorithms.fedavg import FedAvg
from fedhpc.federated.algorithms.feddyn import FedDyn
from fedhpc.federated.algorithms.fedprox import FedProx
from fedhpc.federated.algorithms.scaffold import Scaffold
from fedhpc.models.base import ModelOptions
from fedhpc.objectives.maml import Maml
from fedhpc.objectives.proto import Proto, proto_scores, prototypes
from fedhpc.registry import load
from fedhpc.tensors.vector import ParameterVector
from tests.federated.federation import Clients, federate


def test_p1_one_full_step_of_all_is_pooled_gradient_descent() -> None:
    clients = data_a()
    pooled = Samples(torch.cat([s.x for s in clients.trains]), torch.cat([s.y for s in clients.trains]))
    got, uniform = linear(FedAvg()), linear(FedAvg(weighting="uniform"))
    weights = torch.tensor(CASE["initial_params"], dtype=torch.float64)
    for after in path(got):
        weights = weights - 0.1 * gradient_at(weights, pooled)
        assert apart(after, weights) <= GRID
    assert apart(uniform.weights, weights) == pytest.approx(3.5e-2, rel=0.01)


def test_p2_scaffold_with_one_full_step_is_fedavg_and_controls_are_gradients() -> None:
    scaffold, average = linear(Scaffold()), linear(FedAvg(weighting="uniform"))
    start = torch.tensor(CASE["initial_params"], dtype=torch.float64)
    sent = [start, *path(scaffold)]
    for x, border, expected in zip(sent, scaffold.recorder.borders, path(average), strict=False):
        assert apart(border.vectors["weights"], expected) <= GRID
        for client, state in border.clients.items():
            assert apart(state["control"], gradient_at(x, data_a().trains[client])) <= GRID


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_p3_one_client_is_plain_sgd_except_under_feddyn(steps: int) -> None:
    clients = data_a()
    one = Clients(clients.trains[:1], clients.tests[:1])
    weights = torch.tensor(CASE["initial_params"], dtype=torch.float64)
    for _ in range(4 * steps):
        weights = weights - 0.1 * gradient_at(weights, one.trains[0])
    for algorithm in (FedAvg(), FedAvg(weighting="uniform"), Scaffold(), Scaffold(option=1), FedProx(mu=0.0)):
        if steps == 1 or algorithm != Scaffold(option=1):  # option 1's control is a gradient at x, not along the way
            assert apart(linear(algorithm, steps, one).weights, weights) <= GRID
    if steps == 2:
        assert apart(linear(FedDyn(alpha=0.1), steps, one).weights, weights) == pytest.approx(0.82, abs=0.005)


def test_p4_round_1_of_scaffold_is_fedavg_and_round_2_is_not() -> None:
    scaffold, average = path(linear(Scaffold(), 2)), path(linear(FedAvg(weighting="uniform"), 2))
    assert apart(scaffold[0], average[0]) <= GRID
    assert apart(scaffold[1], average[1]) > 1e-3
    prox, samples = path(linear(FedProx(mu=0.0), 2)), path(linear(FedAvg(), 2))
    assert all(torch.equal(a, b) for a, b in zip(prox, samples, strict=True))


@pytest.mark.parametrize("cohorts", [PARTIAL, [[0, 1, 2, 3, 4]] * 4], ids=["partial", "full"])
def test_p5_server_state_is_the_mean_of_the_clients(cohorts: list[list[int]]) -> None:
    scaffold = linear(Scaffold(), 3, cohorts=cohorts)
    dyn = linear(FedDyn(alpha=0.1), 3, cohorts=cohorts)
    zero = torch.zeros(len(scaffold.weights), dtype=torch.float64)
    for f, own, mean in ((scaffold, "control", "control"), (dyn, "drift", "mean_drift")):
        before: dict[int, Vectors] = {}
        for cohort, border in zip(cohorts, f.recorder.borders, strict=True):
            states = [border.clients[c][own] if c in border.clients else zero for c in range(5)]
            assert apart(torch.stack(states).mean(0), border.vectors[mean]) <= GRID
            assert border.vectors[mean].abs().max() > 1e-3
            assert all(torch.equal(border.clients[c][own], v[own]) for c, v in before.items() if c not in cohort)
            before = border.clients


def test_p6_the_order_of_clients_does_not_matter() -> None:
    forward = linear(Scaffold(), 3, cohorts=PARTIAL)
    backward = linear(Scaffold(), 3, cohorts=[c[::-1] for c in PARTIAL])
    assert all(torch.equal(a, b) for a, b in zip(path(forward), path(backward), strict=True))
    renamed = data_a()
    order = [3, 0, 4, 1, 2]
    mixed = Clients([renamed.trains[c] for c in order], [renamed.tests[c] for c in order])
    cohorts = [[order.index(c) for c in cohort] for cohort in PARTIAL]
    assert all(
        torch.equal(a, b)
        for a, b in zip(path(forward), path(linear(Scaffold(), 3, mixed, cohorts=cohorts)), strict=True)
    )


def test_p7_after_an_exact_local_solve_lambda_is_the_gradient() -> None:
    clients = data_a()
    two = Clients(clients.trains[:2], clients.tests[:2])
    f = linear(FedDyn(alpha=1.0), 1200, two, rounds=1, lr=0.4)
    for client in range(2):
        multiplier = -f.recorder.borders[0].clients[client]["drift"]
        assert apart(multiplier, gradient_at(f.recorder.local[0, client], two.trains[client])) <= GRID


def maml_on_quadratic(steps: int, order: str) -> float:
    """MAML's gradient on f = ½·4·(θ - 1)² at θ = 0 with β = 0.1; squared error written as cross-entropy's stand-in."""
    model = Scalar()
    vector = ParameterVector(model)

    class OnQuadratic(Maml):
        def _loss(self, weights: list[Tensor], batch: Batch) -> Tensor:
            return 0.5 * 4.0 * (weights[0] - 1.0).square().sum()

    nothing = Batch(torch.empty(0), torch.empty(0, dtype=torch.int64))
    vector.zero_grads()
    OnQuadratic(model, vector, inner_lr=0.1, inner_steps=steps, order=order, delta=1e-3).backward([nothing, nothing])  # type: ignore[arg-type]
    return float(vector.grads[0])


@pytest.mark.parametrize(
    ("order", "steps", "expected"),
    [
        ("full", 0, -4.0),
        ("first", 0, -4.0),
        ("hessian_free", 0, -4.0),
        ("full", 1, -1.44),
        ("full", 2, -0.5184),
        ("first", 1, -2.4),
        ("first", 2, -1.44),
        ("hessian_free", 1, -1.44),
        ("hessian_free", 2, -0.5184),
    ],
)
def test_p12_maml_on_a_quadratic(order: str, steps: int, expected: float) -> None:
    assert maml_on_quadratic(steps, order) == pytest.approx(expected, abs=1e-12 if order != "hessian_free" else 1e-9)


def maml_on_mlp(order: str, delta: float = 1e-3) -> Tensor:
    case = json.loads((FOLDER / "mlp_peravg_maml.json").read_text())
    samples = fl_parts.clients_of(FOLDER, case["data"]).train(0)
    model = fl_parts.model_of(case["model"])
    nn.utils.vector_to_parameters(torch.tensor(case["initial_params"], dtype=torch.float64), model.parameters())
    vector = ParameterVector(model)
    vector.zero_grads()
    halves = [Batch(samples.x[k : k + 6], samples.y[k : k + 6]) for k in (0, 6)]
    options = {"inner_lr": 0.2, "inner_steps": 1, "order": order, "delta": delta}
    Maml(model, vector, **options).backward(halves)  # type: ignore[arg-type]
    return vector.grads.clone()


def test_p13_hessian_free_converges_to_full_with_the_square_of_delta() -> None:
    full = maml_on_mlp("full")
    errors = [float((maml_on_mlp("hessian_free", d) - full).norm() / full.norm()) for d in (1e-2, 1e-3, 1e-4)]
    assert errors[0] < 1e-3
    assert errors[0] / errors[1] == pytest.approx(100, rel=0.05)
    assert errors[1] / errors[2] == pytest.approx(100, rel=0.05)
    assert float((maml_on_mlp("first") - full).norm() / full.norm()) > 0.1


def test_p14_prototypes_are_invariant_as_they_must_be() -> None:
    noise = torch.Generator().manual_seed(0)
    support = torch.randn(8, 5, generator=noise, dtype=torch.float64)
    labels, query = torch.tensor([0, 1, 2, 0, 1, 2, 2, 1]), torch.randn(6, 5, generator=noise, dtype=torch.float64)
    scores = proto_scores(query, prototypes(support, labels)[0])
    shift = torch.randn(5, generator=noise, dtype=torch.float64)
    moved = proto_scores(query + shift, prototypes(support + shift, labels)[0])
    torch.testing.assert_close(moved, scores, rtol=0, atol=1e-12)
    order = torch.randperm(8, generator=noise)
    mixed = proto_scores(query, prototypes(support[order], labels[order])[0])
    torch.testing.assert_close(mixed, scores, rtol=0, atol=1e-12)
    means, classes = prototypes(support[:3], labels[:3])
    nearest = torch.cdist(query, support[:3]).argmin(1)
    assert torch.equal(classes[proto_scores(query, means).argmax(1)], labels[nearest])


def test_p14_the_head_gets_no_gradient() -> None:
    model = load("fedhpc.models", "mlp").MODEL((5, 1, 1), 3, ModelOptions(hidden=(4,))).double()
    vector = ParameterVector(model)
    vector.zero_grads()
    batch = Batch(torch.randn(6, 5, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2]))
    Proto(model, vector).backward([batch, batch])
    assert not model.classifier.weight.grad.any()
    assert vector.grads.any()


@pytest.mark.parametrize("algorithm", [FedAvg(), FedProx(mu=0.1), FedDyn(alpha=0.1), Scaffold()], ids=repr)
def test_p15_two_rounds_and_two_more_are_four(algorithm: FederatedAlgorithm) -> None:
    whole = linear(algorithm, 3, cohorts=PARTIAL)
    first = linear(algorithm, 3, cohorts=PARTIAL, rounds=2)
    second = federate(
        algorithm,
        clients=data_a(),
        model=linear_model(),
        cohorts=PARTIAL,
        rounds=4,
        lr=0.1,
        weight_decay=DECAY,
        batches=FullBatches(3),
    )
    second.engine.progress, second.engine.server = first.engine.progress, first.engine.server
    second.engine.states = first.engine.states
    second.run()
    assert all(torch.equal(a, b) for a, b in zip(path(whole)[2:], path(second), strict=True))
    assert len(path(second)) == 2
