"""P8 to P11 of the fifteen properties: two one-dimensional quadratics whose path is known, also of rules gone wrong."""

from __future__ import annotations

import fl_parts
import pytest
import torch
from linear import GRID, FullBatches, Scalar, path
from torch import Tensor

from fedhpc.data.samples import Samples
from fedhpc.errors import ConfigError, FedhpcError
from fedhpc.federated.algorithm import Cohort, FederatedAlgorithm, Vectors
from fedhpc.federated.algorithms.fedavg import FedAvg
from fedhpc.federated.algorithms.feddyn import FedDyn
from fedhpc.federated.algorithms.scaffold import Scaffold
from fedhpc.federated.cohorts import ListedCohorts
from fedhpc.federated.host import SumSettings
from fedhpc.train.correction import Correction
from fedhpc.train.local import LocalTraining
from tests.federated.federation import Clients, federate, make_trainer

# One-dimensional quadratics f_i = a_i/2·(θ - b_i)² with a = (1, 4), b = (0, 1); optimum 0.8.

CURVATURE, MINIMUM, OPTIMUM, K, ETA = (1.0, 4.0), (0.0, 1.0), 0.8, 10, 0.1


def quadratics(
    algorithm: FederatedAlgorithm, rounds: int = 50, alternating: bool = False, sums: SumSettings | None = None
) -> list[float]:
    packed = [
        Samples(torch.tensor([[a, b]], dtype=torch.float64), torch.zeros(1, dtype=torch.int64))
        for a, b in zip(CURVATURE, MINIMUM, strict=True)
    ]
    cohorts = ListedCohorts([[r % 2] if alternating else [0, 1] for r in range(rounds)])
    trainer = make_trainer(Scalar(), FullBatches(K), objective=fl_parts.Quadratic, lr=ETA)
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
