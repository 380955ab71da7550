"""Server rules beyond the studies, against their formulas worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from fedhpc.errors import ConfigError
from fedhpc.federated.algorithm import Cohort, FederatedAlgorithm, Vectors
from fedhpc.federated.algorithms.fedadam import FedAdam
from fedhpc.federated.algorithms.fedavg import FedAvg
from fedhpc.federated.algorithms.fedavgm import FedAvgM
from fedhpc.federated.algorithms.fednova import FedNova
from fedhpc.federated.algorithms.fedyogi import FedYogi

COHORT = Cohort(0, (0, 1), (0, 1), 4, (2, 6), {"samples": (0.25, 0.75), "uniform": (0.5, 0.5)})
DELTAS = (0.5, -0.25, 0.125)


def play(rule: FederatedAlgorithm, deltas: tuple[float, ...] = DELTAS) -> list[float]:
    """The weight after each round whose mean change is given, from 1."""
    start = torch.ones(1, dtype=torch.float64)
    state: Vectors = {"weights": start.clone(), **rule.init(start)}
    trajectory = []
    for delta in deltas:
        rule.server_update(state, {"delta": torch.full((1,), delta, dtype=torch.float64)}, COHORT)
        trajectory.append(float(state["weights"]))
    return trajectory


def test_momentum_adds_up_the_changes() -> None:
    assert play(FedAvgM(momentum=0.5)) == [1.5, 1.5 + (0.25 - 0.25), 1.5 + 0.0 + 0.125]
    assert play(FedAvgM(momentum=0.0, server_lr=2.0)) == play(FedAvg(server_lr=2.0))


@pytest.mark.parametrize("rule", [FedAdam, FedYogi])
def test_adaptive_rules_follow_their_formula(rule: type[FedAdam] | type[FedYogi]) -> None:
    lr, b1, b2, tau = 0.1, 0.9, 0.8, 0.01
    x, m, v, expected = 1.0, 0.0, tau**2, []
    for delta in DELTAS:
        m = b1 * m + (1 - b1) * delta
        square = delta * delta
        v = b2 * v + (1 - b2) * square if rule is FedAdam else v - (1 - b2) * square * math.copysign(1, v - square)
        x += lr * m / (math.sqrt(v) + tau)
        expected.append(x)
    assert play(rule(server_lr=lr, beta1=b1, beta2=b2, tau=tau)) == pytest.approx(expected, abs=1e-15)


def test_nova_weighs_steps_out() -> None:
    """Clients move by 2 in 2 steps and by 6 in 6: each step is worth 1, and there are 0.25·2 + 0.75·6 = 5 of them."""
    state = {"weights": torch.zeros(1, dtype=torch.float64)}
    totals = {"delta": torch.full((1,), 5.0), "per_step": torch.ones(1, dtype=torch.float64)}
    FedNova().server_update(state, totals, COHORT)
    assert float(state["weights"]) == 5.0
    FedNova(weighting="uniform").server_update(state, totals, COHORT)
    assert float(state["weights"]) == 5.0 + 4.0


@pytest.mark.parametrize(
    ("rule", "options", "key"),
    [
        (FedAvgM, {"momentum": 1.0}, "momentum"),
        (FedAvgM, {"server_lr": 0.0}, "server_lr"),
        (FedAdam, {"tau": 0.0}, "tau"),
        (FedYogi, {"beta2": 1.0}, "beta2"),
        (FedAdam, {"beta1": -0.1}, "beta1"),
    ],
)
def test_values_outside_the_range_are_refused_by_name(rule: type, options: dict[str, float], key: str) -> None:
    with pytest.raises(ConfigError, match=f"algorithm.{key} must be"):
        rule(**options)


def test_nova_refuses_optimizers_it_cannot_normalise() -> None:
    FedNova().check_local("sgd", 0.0)
    for optimizer, momentum in (("adam", 0.0), ("sgd", 0.9)):
        with pytest.raises(ConfigError, match="fednova"):
            FedNova().check_local(optimizer, momentum)
