"""Batch norm in a federation: whose statistics count, with which weight, and what is never extrapolated."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedhpc.federated.algorithm import FederatedAlgorithm
from fedhpc.federated.algorithms.fedavg import FedAvg
from fedhpc.federated.algorithms.feddyn import FedDyn
from fedhpc.federated.algorithms.scaffold import Scaffold
from fedhpc.federated.host import LOCAL_BUFFERS, SumSettings
from tests.federated.federation import (
    FEATURES,
    NormNet,
    federate,
    make_clients,
    mlp,
    norm_federation,
)


def statistics_of_one(client: int) -> tuple[Tensor, Tensor]:
    """Running statistics and counter of a client that trains one round from the start."""
    f = norm_federation(cohorts=[[client]], rounds=1).run()
    return f.recorder.borders[0].buffers, f.recorder.borders[0].counters


def test_statistics_are_the_sample_weighted_mean_and_counters_the_maximum() -> None:
    f = norm_federation(rounds=1, cohorts=[[0, 2]]).run()
    (first, a), (third, b) = statistics_of_one(0), statistics_of_one(2)
    expected = (6 * first + 14 * third) / 20
    torch.testing.assert_close(f.recorder.borders[0].buffers, expected, rtol=0, atol=1e-11)
    assert (a.tolist(), b.tolist()) == ([2.0], [4.0])
    assert f.recorder.borders[0].counters.tolist() == [4.0]
    final = f.engine.final_model()
    assert final["norm.num_batches_tracked"].dtype == torch.int64
    assert final["norm.num_batches_tracked"].item() == 4
    torch.testing.assert_close(final["norm.running_mean"], expected[:FEATURES], rtol=0, atol=1e-11)


def test_statistics_can_be_the_plain_mean() -> None:
    sums = SumSettings(buffer_weighting="uniform")
    f = norm_federation(rounds=1, cohorts=[[0, 2]], settings={"sums": sums}).run()
    expected = (statistics_of_one(0)[0] + statistics_of_one(2)[0]) / 2
    torch.testing.assert_close(f.recorder.borders[0].buffers, expected, rtol=0, atol=1e-11)


def test_statistics_and_counters_go_on_from_round_to_round() -> None:
    f = norm_federation(rounds=3, cohorts=[[2], [0], [2]]).run()
    assert [b.counters.tolist() for b in f.recorder.borders] == [[4.0], [6.0], [10.0]]
    assert not torch.equal(f.recorder.borders[1].buffers, statistics_of_one(0)[0])


@pytest.mark.parametrize("algorithm", [FedAvg(server_lr=5.0), FedDyn(alpha=0.01), Scaffold(server_lr=3.0)], ids=repr)
def test_running_variance_never_turns_negative(algorithm: FederatedAlgorithm) -> None:
    clients = make_clients((6, 10, 14))
    for samples in clients.trains:
        samples.x.mul_(1e-3)  # the variance shrinks every round, so that an extrapolation would overshoot zero
    f = norm_federation(algorithm, clients=clients, rounds=6).run()
    for before, border in zip(
        [torch.ones(FEATURES), *[b.buffers[FEATURES:] for b in f.recorder.borders]], f.recorder.borders, strict=False
    ):
        variance = border.buffers[FEATURES:]
        assert (variance > 0).all()
        assert (variance < before).all()


@pytest.mark.parametrize("algorithm", [FedDyn(alpha=0.1), Scaffold()], ids=repr)
def test_algorithm_state_exists_for_trainable_weights_alone(algorithm: FederatedAlgorithm) -> None:
    f = norm_federation(algorithm, rounds=1).run()
    size = sum(p.numel() for p in NormNet().parameters())
    border = f.recorder.borders[0]
    assert all(v.numel() == size for v in border.vectors.values())
    assert all(v.numel() == size for state in border.clients.values() for v in state.values())


def test_frozen_parameters_travel_nowhere_and_stay() -> None:
    model = mlp()
    model.body[0].weight.requires_grad_(False)
    kept = model.body[0].weight.clone()
    f = federate(Scaffold(), model=model, rounds=2).run()
    assert len(f.weights) == sum(p.numel() for p in mlp().parameters()) - kept.numel()
    assert torch.equal(f.engine.final_model()["body.0.weight"], kept)


def test_keep_local_gives_each_client_its_own_statistics() -> None:
    f = norm_federation(rounds=2, cohorts=[[0, 1], [0]], sums=SumSettings(buffers="keep_local")).run()
    start = torch.cat([torch.zeros(FEATURES), torch.ones(FEATURES)]).double()
    first, second = f.recorder.borders
    assert torch.equal(first.buffers, start)  # the server's are never touched
    assert set(first.clients) == {0, 1}
    torch.testing.assert_close(first.clients[0][LOCAL_BUFFERS[0]], statistics_of_one(0)[0], rtol=0, atol=1e-11)
    assert first.clients[0][LOCAL_BUFFERS[1]].tolist() == [2.0]
    assert second.clients[0][LOCAL_BUFFERS[1]].tolist() == [4.0]
    assert not torch.equal(second.clients[0][LOCAL_BUFFERS[0]], first.clients[0][LOCAL_BUFFERS[0]])
    assert all(torch.equal(second.clients[1][k], first.clients[1][k]) for k in LOCAL_BUFFERS)


def test_keep_local_evaluates_each_client_with_its_own_statistics() -> None:
    f = norm_federation(rounds=1, cohorts=[[0]], sums=SumSettings(buffers="keep_local")).run()
    model = NormNet().double()
    for client in range(3):
        torch.nn.utils.vector_to_parameters(f.weights, model.parameters())
        own = f.engine.states.get(client)[LOCAL_BUFFERS[0]]
        model.norm.running_mean.copy_(own[:FEATURES])
        model.norm.running_var.copy_(own[FEATURES:])
        data = f.clients.test(client)
        expected = float((model.eval()(data.x).argmax(1) == data.y).double().mean())
        assert f.sink.values("client_accuracy", client=client)[-1] == expected


def test_keep_global_leaves_statistics_as_they_began() -> None:
    f = norm_federation(rounds=2, sums=SumSettings(buffers="keep_global")).run()
    start = torch.cat([torch.zeros(FEATURES), torch.ones(FEATURES)]).double()
    assert all(torch.equal(b.buffers, start) for b in f.recorder.borders)
    assert f.recorder.borders[-1].counters.tolist() == [0.0]


def test_statistics_of_a_diverged_client_do_not_count() -> None:
    clients = make_clients((6, 10, 14))
    clients.trains[1].x[0] = float("nan")
    f = norm_federation(clients=clients, rounds=1).run()
    without = norm_federation(cohorts=[[0, 2]], rounds=1).run()
    torch.testing.assert_close(f.recorder.borders[0].buffers, without.recorder.borders[0].buffers, rtol=0, atol=1e-11)
    assert torch.equal(f.recorder.borders[0].counters, without.recorder.borders[0].counters)
