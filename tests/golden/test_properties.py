"""The fifteen properties of the federated rules, with their numbers, on the default grid of exact sums.

P1 to P6 hold to 1e-16 in plain float64; on the grid of 40 bits they hold within 1e-11. That any number of ranks gives
the same bits (the other half of P15) is shown by tests/mpi.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import fl_cases
import numpy as np
import pytest
import torch
from folders import HERE
from torch import Tensor, nn
from torch.nn import functional

from fedhpc.data.samples import Batch, Samples
from fedhpc.errors import ConfigError, FedhpcError
from fedhpc.federated.algorithm import Cohort, FederatedAlgorithm, Vectors
from fedhpc.federated.algorithms.fedavg import FedAvg
from fedhpc.federated.algorithms.feddyn import FedDyn
from fedhpc.federated.algorithms.fedprox import FedProx
from fedhpc.federated.algorithms.scaffold import Scaffold
from fedhpc.federated.cohorts import ListedCohorts
from fedhpc.federated.host import SumSettings
from fedhpc.models.base import ModelOptions
from fedhpc.objectives.maml import Maml
from fedhpc.objectives.proto import Proto, proto_scores, prototypes
from fedhpc.registry import load
from fedhpc.tensors.vector import ParameterVector
from fedhpc.train.correction import Correction
from fedhpc.train.local import LocalTraining
from tests.federated.federation import Clients, Federation, federate, make_trainer

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
    model = fl_cases.model_of(CASE["model"])
    nn.utils.vector_to_parameters(torch.tensor(CASE["initial_params"], dtype=torch.float64), model.parameters())
    return model


def data_a() -> Clients:
    return fl_cases.clients_of(FOLDER, "fl_data_a")


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


# One-dimensional quadratics f_i = a_i/2·(θ - b_i)² with a = (1, 4), b = (0, 1); optimum 0.8.

CURVATURE, MINIMUM, OPTIMUM, K, ETA = (1.0, 4.0), (0.0, 1.0), 0.8, 10, 0.1


class Scalar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(1, dtype=torch.float64))


def quadratics(
    algorithm: FederatedAlgorithm, rounds: int = 50, alternating: bool = False, sums: SumSettings | None = None
) -> list[float]:
    packed = [
        Samples(torch.tensor([[a, b]], dtype=torch.float64), torch.zeros(1, dtype=torch.int64))
        for a, b in zip(CURVATURE, MINIMUM, strict=True)
    ]
    cohorts = ListedCohorts([[r % 2] if alternating else [0, 1] for r in range(rounds)])
    trainer = make_trainer(Scalar(), FullBatches(K), objective=fl_cases.Quadratic, lr=ETA)
    clients = Clients(packed, packed)
    f = federate(algorithm, clients=clients, cohorts=cohorts, rounds=rounds, trainer=trainer, sums=sums).run()
    return [float(w[0]) for w in path(f)]


AVERAGE = FedAvg(weighting="uniform")


def test_p8_feddyn_at_tiny_alpha_is_not_fedavg_and_zero_is_refused() -> None:
    tiny, average = quadratics(FedDyn(alpha=1e-12), 3), quadratics(AVERAGE, 3)
    assert [round(v, 5) for v in tiny] == [0.99395, 0.84956, 0.62205]
    assert [round(v, 5) for v in average] == [0.49698, 0.58512, 0.60076]
    with pytest.raises(ConfigError, match=r"alpha must be above 0, got 0.*not FedAvg"):
        FedDyn(alpha=0.0)


def test_p9_full_participation_reaches_the_known_points() -> None:
    s = [1 - (1 - ETA * a) ** K for a in CURVATURE]
    assert quadratics(AVERAGE)[-1] == pytest.approx(s[1] / (s[0] + s[1]), abs=GRID)
    assert s[1] / (s[0] + s[1]) == pytest.approx(0.6041260077, abs=1e-10)
    scaffold = quadratics(Scaffold())
    assert [round(v, 6) for v in scaffold[:2]] == [0.496977, 0.685221]
    errors = [abs(scaffold[r - 1] - OPTIMUM) for r in (5, 10, 20)]
    assert errors == [pytest.approx(e, rel=0.02) for e in (6.2e-3, 4.9e-5, 3.0e-9)]
    assert abs(scaffold[-1] - OPTIMUM) <= GRID
    dyn = quadratics(FedDyn(alpha=1.0))
    assert [round(v, 6) for v in dyn[:3]] == [0.799219, 0.842907, 0.813264]
    errors = [abs(dyn[r - 1] - OPTIMUM) for r in (5, 10, 20)]
    assert errors == [pytest.approx(e, rel=0.02) for e in (4.7e-3, 6.9e-4, 5.0e-6)]
    assert abs(dyn[-1] - OPTIMUM) <= GRID


def test_p10_alternating_clients_reach_the_optimum_only_with_state() -> None:
    assert abs(quadratics(Scaffold(), alternating=True)[-1] - OPTIMUM) <= GRID
    assert abs(quadratics(FedDyn(alpha=1.0), alternating=True)[-1] - OPTIMUM) <= GRID
    swing = quadratics(AVERAGE, alternating=True)[-2:]
    assert sorted(swing) == [pytest.approx(0.34730, abs=5e-6), pytest.approx(0.99605, abs=5e-6)]


class WrongSign(Scaffold):
    """y - x where x - y belongs: the control's sign is flipped."""

    def _control(self, own: Tensor, c: Tensor, delta: Tensor, local: LocalTraining) -> Tensor:
        return own - c + delta / (local.num_steps * local.lr)


class OneStep(Scaffold):
    """K taken as 1."""

    def _control(self, own: Tensor, c: Tensor, delta: Tensor, local: LocalTraining) -> Tensor:
        return own - c - delta / local.lr


class WrongLambda(FedDyn):
    """The linear term's sign is flipped."""

    def client_update(self, server: Vectors, client: Vectors, local: LocalTraining) -> Vectors:
        x, drift = server["weights"], client["drift"]
        delta = local.train(Correction(linear=-drift * self.alpha, pull=self.alpha, anchor=x)) - x
        return {"delta": delta, "drift": drift + delta}


class NoServerTerm(FedDyn):
    """The server forgets h."""

    def server_update(self, state: Vectors, totals: Vectors, cohort: Cohort) -> None:
        state["weights"].add_(totals["delta"])


class NoLinearTerm(FedDyn):
    """The client forgets λ."""

    def client_update(self, server: Vectors, client: Vectors, local: LocalTraining) -> Vectors:
        x = server["weights"]
        delta = local.train(Correction(pull=self.alpha, anchor=x)) - x
        return {"delta": delta, "drift": client["drift"] + delta}


def test_p11_wrong_signs_run_away_as_known() -> None:
    flipped = quadratics(WrongSign(), 20)
    known = {1: 0.497, 2: 0.485, 5: -0.165, 10: -5.97, 20: -332.6}
    assert {r: flipped[r - 1] for r in known} == {r: pytest.approx(v, rel=0.01) for r, v in known.items()}
    assert quadratics(OneStep(), 2)[1] == pytest.approx(1.586, abs=5e-4)
    assert quadratics(NoServerTerm(alpha=1.0))[-1] == pytest.approx(0.571429, abs=5e-6)
    assert quadratics(NoLinearTerm(alpha=1.0))[-1] == pytest.approx(0.641669, abs=5e-6)


def test_p11_runs_that_explode() -> None:
    wide = SumSettings(10)  # a grid that holds numbers up to 2^41
    assert quadratics(OneStep(), 20, sums=wide)[-1] == pytest.approx(2.96e9, rel=0.01)
    assert quadratics(WrongLambda(alpha=1.0), 50, sums=wide)[-1] == pytest.approx(-7.6e5, rel=0.01)


def test_p11_a_run_that_explodes_is_stopped_by_the_default_grid() -> None:
    with pytest.raises(FedhpcError, match="2 of 2 clients diverged"):
        quadratics(OneStep(), 50)


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
    samples = fl_cases.clients_of(FOLDER, case["data"]).train(0)
    model = fl_cases.model_of(case["model"])
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
