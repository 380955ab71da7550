"""Clients whose results cannot be used are named and skipped, or stop the run; none ever weighs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from fedhpc.data.samples import Batch
from fedhpc.errors import FedhpcError
from fedhpc.federated.algorithm import Vectors
from fedhpc.federated.algorithms.fedavg import FedAvg
from fedhpc.federated.algorithms.scaffold import Scaffold
from fedhpc.federated.host import SumSettings
from fedhpc.federated.state import Snapshot
from fedhpc.objectives.base import StepReport
from fedhpc.objectives.erm import Erm
from fedhpc.train.local import LocalTraining
from tests.federated.federation import (
    ALGORITHMS,
    Clients,
    NormNet,
    federate,
    make_clients,
    same,
)


def poisoned(client: int, value: float, sizes: tuple[int, ...] = (6, 9, 12)) -> Clients:
    """Clients of which one holds a sample that ruins its training."""
    clients = make_clients(sizes)
    clients.trains[client].x[0] = value
    return clients


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_client_that_diverges_is_named_and_skipped_and_keeps_its_state(name: str, value: float) -> None:
    healthy, clients = make_clients(), make_clients()
    f = federate(ALGORITHMS[name], clients=clients, rounds=3)
    first = federate(ALGORITHMS[name], clients=healthy, rounds=1).run().recorder.borders[0]

    class Poison:
        """Ruins client 1's samples after the first round."""

        def save(self, snapshot: Snapshot) -> None:
            f.recorder.save(snapshot)
            clients.trains[1].x[0] = value

    f.engine._saver = Poison()
    f.run()
    assert same(f.recorder.borders[0], first)
    assert [sorted(d) for d in f.sink.diverged] == [[], [1], [1]]
    assert f.sink.values("diverged", client=1) == [1, 1]
    assert f.sink.values("cohort_size") == [3, 2, 2]
    for border in f.recorder.borders[1:]:
        assert all(torch.isfinite(v).all() for v in border.vectors.values())
        if 1 in border.clients:
            assert all(torch.equal(v, first.clients[1][k]) for k, v in border.clients[1].items())
            assert not torch.equal(
                border.clients[0][next(iter(border.clients[0]))], next(iter(first.clients[0].values()))
            )


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_without_the_skipped_client_the_others_are_averaged(weighting: Any) -> None:
    with_nan = federate(FedAvg(weighting=weighting), clients=poisoned(1, float("nan")), rounds=1).run()
    without = federate(FedAvg(weighting=weighting), clients=make_clients(), cohorts=[[0, 2]], rounds=1).run()
    torch.testing.assert_close(with_nan.weights, without.weights, rtol=0, atol=1e-11)


def test_skipped_clients_reason_and_round_are_in_the_error_when_all_fail() -> None:
    clients = make_clients((6, 9))
    for samples in clients.trains:
        samples.x[0] = float("nan")
    f = federate(clients=clients, rounds=2)
    before = f.weights.clone()
    with pytest.raises(FedhpcError, match=r"2 of 2 clients diverged in round 1 \(client 0: .*not finite.*client 1"):
        f.run()
    assert torch.equal(f.weights, before)
    assert f.recorder.borders == []


def test_policy_stop_ends_the_run_at_the_first() -> None:
    f = federate(Scaffold(), clients=poisoned(2, float("nan")), settings={"on_divergence": "stop"})
    before = f.weights.clone()
    with pytest.raises(FedhpcError, match=r"1 of 3 clients diverged in round 1 \(client 2"):
        f.run()
    assert torch.equal(f.weights, before)
    assert not f.server("control").any()


@dataclass(frozen=True)
class FarAway(FedAvg):
    """One client's change has an entry of a given size."""

    size: float = 0.0

    def client_update(self, server: Vectors, client: Vectors, local: LocalTraining) -> Vectors:
        delta = super().client_update(server, client, local)["delta"].clone()
        if local.client == 1:
            delta[3] = -self.size
        return {"delta": delta}


@dataclass(frozen=True)
class RuinsItsState(Scaffold):
    """One client's contribution is fine, but what it would keep is not a number."""

    def client_update(self, server: Vectors, client: Vectors, local: LocalTraining) -> Vectors:
        result = super().client_update(server, client, local)
        return {**result, "control": result["control"] * (float("nan") if local.client == 1 else 1)}


def test_a_client_whose_new_state_is_not_a_number_is_skipped_too() -> None:
    f = federate(RuinsItsState(), rounds=2).run()
    assert [list(d) for d in f.sink.diverged] == [[1], [1]]
    assert set(f.recorder.borders[-1].clients) == {0, 2}


@pytest.mark.parametrize(("size", "skipped"), [(2047.9, False), (2048.0, True), (1e30, True)])
def test_a_change_outside_the_grid_counts_as_diverged_and_is_never_saturated(size: float, skipped: bool) -> None:
    f = federate(FarAway(size=size), rounds=1).run()
    assert f.sink.diverged == [{1: "an entry of its result left the grid"} if skipped else {}]
    if skipped:
        without = federate(cohorts=[[0, 2]], rounds=1).run()
        torch.testing.assert_close(f.weights, without.weights, rtol=0, atol=1e-11)
    else:
        assert f.weights[3] < -500


def test_the_bound_moves_with_the_grid_and_is_gone_without_one() -> None:
    assert federate(FarAway(size=200.0), rounds=1, sums=SumSettings(44)).run().sink.diverged == [
        {1: "an entry of its result left the grid"}
    ]
    assert federate(FarAway(size=1e6), rounds=1, sums=SumSettings(None)).run().sink.diverged == [{}]


def test_batch_norm_statistics_outside_their_grid_are_noticed() -> None:
    clients = make_clients((6, 10, 14))
    clients.trains[1].x.mul_(1e4)  # the running variance becomes about 1e7
    f = federate(model=NormNet().double(), clients=clients, rounds=1).run()
    assert f.sink.diverged == [{1: "a batch norm statistic left its grid"}]
    f = federate(model=NormNet().double(), clients=clients, rounds=1, sums=SumSettings(buffer_grid_bits=20)).run()
    assert f.sink.diverged == [{}]
    alone = federate(model=NormNet().double(), clients=clients, rounds=1, cohorts=[[1]])
    with pytest.raises(FedhpcError, match=r"begin anew with a lower aggregation\.buffer_grid_bits"):
        alone.run()


class NoBatches:
    """Takes no step."""

    def batches(self, client: int, round: int, num_samples: int) -> Any:
        return iter(())

    def num_steps(self, num_samples: int) -> int:
        return 0


def test_a_participant_without_samples_weighs_nothing() -> None:
    clients = make_clients((6, 0, 12))
    f = federate(clients=clients, rounds=1, batches=NoBatches())
    before = f.weights.clone()
    f.run()
    torch.testing.assert_close(f.weights, before)
    assert math.isnan(f.sink.values("train_loss")[0])


def test_zero_total_weight_is_an_error_that_leaves_the_state() -> None:
    f = federate(clients=make_clients((6, 0, 0)), cohorts=[[1, 2]], rounds=1, batches=NoBatches())
    before = f.weights.clone()
    with pytest.raises(FedhpcError, match=r"participants of round 1 have no training samples: zero total weight"):
        f.run()
    assert torch.equal(f.weights, before)


def test_a_client_that_skips_all_steps_leaves_the_mean_loss_of_the_others() -> None:
    class FirstClientSkips(Erm):
        def backward(self, minibatches: list[Batch]) -> StepReport:
            report = super().backward(minibatches)
            return StepReport(report.loss, skip=bool((minibatches[0].x == 99).all()))

    clients = make_clients((4, 8))
    clients.trains[0].x.fill_(99)
    f = federate(clients=clients, rounds=1, objective=FirstClientSkips).run()
    alone = federate(clients=make_clients((4, 8)), cohorts=[[1]], rounds=1).run()
    assert f.sink.values("train_loss") == alone.sink.values("train_loss")
