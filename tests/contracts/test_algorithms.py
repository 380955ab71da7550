"""What every federated rule keeps, whichever files lie in fedhpc/federated/algorithms: a new one is tested as it is."""

from __future__ import annotations

import copy
import dataclasses
import functools
import subprocess
import sys
import typing

import pytest
import torch
from torch import Tensor

from fedhpc import registry
from fedhpc.errors import ConfigError
from fedhpc.federated.algorithm import Cohort, FederatedAlgorithm, Vectors, Weighting
from fedhpc.federated.algorithms.fedavg import FedAvg
from fedhpc.federated.host import SumSettings
from fedhpc.federated.state import Snapshot
from fedhpc.train.local import LocalTraining
from tests.federated.federation import Federation, federate, make_clients, make_trainer, mlp, norm_federation, same

PACKAGE = "fedhpc.federated.algorithms"
COHORTS = [[0, 1, 2], [0, 2], [1], [1, 2]]


@pytest.fixture(params=registry.names(PACKAGE))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def make(name: str, **options: object) -> FederatedAlgorithm:
    return registry.load(PACKAGE, name).ALGORITHM(**options)


def run(name: str, **options: object) -> Federation:
    chosen = {"clients": make_clients((6, 9, 12)), "cohorts": COHORTS, "rounds": 4, **options}
    return federate(make(name), **chosen).run()  # type: ignore[arg-type]


def local_training(client: int = 1) -> LocalTraining:
    trainer = make_trainer(mlp())
    vector = trainer.vector
    return trainer.begin(client, 0, make_clients().train(client), vector.weights.clone(), vector.buffers, 1.0)


def noise(like: Tensor, seed: int) -> Tensor:
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(seed), dtype=like.dtype) * 0.01


def start(algorithm: FederatedAlgorithm) -> Vectors:
    weights = torch.nn.utils.parameters_to_vector(mlp().parameters()).detach()
    return {"weights": weights, **algorithm.init(weights.clone())}


@functools.cache
def real_cohort() -> Cohort:
    """A cohort as the server makes it after a round of real clients."""
    seen: list[Cohort] = []

    class Watched(FedAvg):
        def server_update(self, state: Vectors, totals: Vectors, cohort: Cohort) -> None:
            seen.append(cohort)
            super().server_update(state, totals, cohort)

    federate(Watched(), rounds=1, cohorts=[[0, 2]]).run()
    return seen[0]


# What it is


def test_is_a_frozen_dataclass_of_its_file_with_defaults(name: str) -> None:
    kind = registry.load(PACKAGE, name).ALGORITHM
    assert issubclass(kind, FederatedAlgorithm)
    assert kind.__module__ == f"{PACKAGE}.{name}"
    assert kind.__doc__
    assert dataclasses.is_dataclass(kind)
    algorithm = kind()
    with pytest.raises(dataclasses.FrozenInstanceError):
        algorithm.anything = 1
    again = kind(**dataclasses.asdict(algorithm))
    assert again == algorithm
    assert copy.deepcopy(algorithm) == algorithm


def test_needs_no_torch_to_be_configured(name: str) -> None:
    code = f"import sys, {PACKAGE}.{name} as m; m.ALGORITHM().traffic; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_numbers_that_are_none_are_refused_with_the_key(name: str) -> None:
    for field in dataclasses.fields(make(name)):  # type: ignore[arg-type]
        if isinstance(field.default, float):
            with pytest.raises(ConfigError, match=rf"algorithm\.{field.name} "):
                make(name, **{field.name: float("nan")})


def test_plain_sgd_is_always_allowed(name: str) -> None:
    make(name).check_local("sgd", 0.0)


def test_traffic_is_declared_in_full(name: str) -> None:
    traffic = make(name).traffic
    assert traffic.broadcast[0] == "weights"
    assert "delta" in traffic.summed
    assert set(traffic.summed.values()) <= set(typing.get_args(Weighting))
    for names in (traffic.broadcast, traffic.summed, traffic.client_state):
        assert len(set(names)) == len(names)
        assert not any(n.startswith("_") for n in names)  # reserved for the engine
    assert not set(traffic.summed) & set(traffic.client_state)


# Its rules


def test_server_vectors_are_new_float64_and_of_the_weights_size(name: str) -> None:
    algorithm = make(name)
    weights = torch.ones(7, dtype=torch.float64)
    found = algorithm.init(weights)
    assert set(algorithm.traffic.broadcast) - {"weights"} <= set(found)
    assert "weights" not in found
    for vector in found.values():
        assert vector.shape == (7,)
        assert vector.dtype == torch.float64
        assert torch.isfinite(vector).all()
        assert vector.data_ptr() != weights.data_ptr()
    assert torch.equal(weights, torch.ones(7, dtype=torch.float64))


def test_a_client_returns_what_is_declared_and_writes_to_nothing_it_was_given(name: str) -> None:
    algorithm, local = make(name), local_training()
    weights = local._trainer.vector.weights.clone()
    server = {n: weights.clone() if n == "weights" else noise(weights, 1) for n in algorithm.traffic.broadcast}
    client = {n: noise(weights, 2) for n in algorithm.traffic.client_state}
    before = {k: v.clone() for k, v in {**server, **{f"own {n}": v for n, v in client.items()}}.items()}
    result = algorithm.client_update(server, client, local)
    assert set(result) == {*algorithm.traffic.summed, *algorithm.traffic.client_state}
    for vector in result.values():
        assert vector.shape == weights.shape
        assert vector.dtype == weights.dtype
        assert torch.isfinite(vector).all()
    assert local.num_steps > 0
    torch.testing.assert_close(result["delta"], local._trainer.vector.weights - weights)
    assert list(server) == list(algorithm.traffic.broadcast)
    after = {**server, **{f"own {n}": v for n, v in client.items()}}
    assert all(torch.equal(after[k], v) for k, v in before.items())


def test_what_a_client_returns_does_not_change_when_the_next_one_trains(name: str) -> None:
    algorithm, local = make(name), local_training(0)
    trainer = local._trainer
    weights = trainer.vector.weights.clone()
    server = {n: weights if n == "weights" else torch.zeros_like(weights) for n in algorithm.traffic.broadcast}
    client = {n: torch.zeros_like(weights) for n in algorithm.traffic.client_state}
    result = algorithm.client_update(server, client, local)
    kept = {k: v.clone() for k, v in result.items()}
    other = trainer.begin(2, 0, make_clients().train(2), weights, trainer.vector.buffers, 1.0)
    algorithm.client_update(server, client, other)
    assert all(torch.equal(result[k], v) for k, v in kept.items())


def test_the_server_updates_in_place_and_reads_the_totals_only(name: str) -> None:
    algorithm = make(name)
    state = start(algorithm)
    before, places = {k: v.clone() for k, v in state.items()}, {k: v.data_ptr() for k, v in state.items()}
    totals = {n: noise(state["weights"], i) for i, n in enumerate(algorithm.traffic.summed)}
    given = {k: v.clone() for k, v in totals.items()}
    algorithm.server_update(state, totals, real_cohort())
    assert {k: v.data_ptr() for k, v in state.items()} == places
    assert all(torch.equal(totals[k], v) for k, v in given.items())
    assert not torch.equal(state["weights"], before["weights"])
    assert all(torch.isfinite(v).all() for v in state.values())


def test_elementwise_rules_may_be_given_blocks(name: str) -> None:
    algorithm = make(name)
    if not algorithm.elementwise:
        pytest.skip("takes its vectors whole")
    whole, parts = start(algorithm), start(algorithm)
    totals = {n: noise(whole["weights"], i) for i, n in enumerate(algorithm.traffic.summed)}
    algorithm.server_update(whole, totals, real_cohort())
    for part in (slice(0, 5), slice(5, 17), slice(17, None)):
        block = {k: v[part] for k, v in parts.items()}
        algorithm.server_update(block, {k: v[part] for k, v in totals.items()}, real_cohort())
    assert all(torch.equal(parts[k], v) for k, v in whole.items())


def test_clients_that_did_not_move_leave_the_model(name: str) -> None:
    algorithm = make(name)
    state = start(algorithm)
    before = state["weights"].clone()
    zeros = {n: torch.zeros_like(before) for n in algorithm.traffic.summed}
    algorithm.server_update(state, zeros, real_cohort())
    assert torch.equal(state["weights"], before)


# In the engine


def test_runs_and_learns(name: str) -> None:
    f = run(name, rounds=30, cohorts=[[0, 1, 2]] * 30, lr=0.3, settings={"evaluate_every": 1})
    losses = f.sink.values("train_loss")
    assert losses[-1] < losses[0]
    assert f.sink.values("diverged") == []


def test_one_broadcast_and_one_reduce_per_round(name: str) -> None:
    assert run(name).world.calls == {"broadcast": 5, "reduce": 4}


def test_the_object_holds_no_state(name: str) -> None:
    algorithm = make(name)
    held = dict(vars(algorithm))
    first = federate(algorithm, cohorts=COHORTS, rounds=4).run()
    assert vars(algorithm) == held
    second = federate(algorithm, cohorts=COHORTS, rounds=4).run()
    assert all(same(a, b) for a, b in zip(first.recorder.borders, second.recorder.borders, strict=True))


def test_who_sits_out_keeps_its_state(name: str) -> None:
    borders = run(name).recorder.borders
    for cohort, before, after in zip(COHORTS[1:], borders, borders[1:], strict=False):
        for client, state in before.clients.items():
            if client not in cohort:
                assert all(torch.equal(after.clients[client][k], v) for k, v in state.items())


def test_the_order_of_clients_does_not_matter(name: str) -> None:
    forward, backward = run(name), federate(make(name), clients=make_clients((6, 9, 12)), cohorts=COHORTS, rounds=4)
    real = backward.engine._host.train
    backward.engine._host.train = lambda r, cohort, mine, *rest: real(r, cohort, list(mine)[::-1], *rest)  # type: ignore[method-assign]
    backward.run()
    assert all(same(a, b) for a, b in zip(forward.recorder.borders, backward.recorder.borders, strict=True))


def test_a_run_cut_in_two_is_the_same_run(name: str) -> None:
    class Last:
        kept: Snapshot

        def save(self, snapshot: Snapshot) -> None:
            self.kept = copy.deepcopy(snapshot)

    whole, last = run(name), Last()
    federate(make(name), clients=make_clients((6, 9, 12)), cohorts=COHORTS, rounds=2, saver=last).run()
    second = federate(make(name), clients=make_clients((6, 9, 12)), cohorts=COHORTS, rounds=4)
    engine = second.engine
    engine.progress, engine.server = last.kept.progress, last.kept.server
    engine.states, engine.costs = last.kept.states, last.kept.costs
    second.run()
    assert all(same(a, b) for a, b in zip(whole.recorder.borders[2:], second.recorder.borders, strict=True))


def test_a_client_that_diverges_is_left_out(name: str) -> None:
    clients = make_clients((6, 9, 12))
    clients.trains[1].x[0] = float("nan")
    f = run(name, clients=clients, cohorts=[[0, 1, 2]] * 2, rounds=2)
    assert [list(d) for d in f.sink.diverged] == [[1], [1]]
    assert all(torch.isfinite(v).all() for v in f.recorder.borders[-1].vectors.values())
    assert 1 not in f.recorder.borders[-1].clients


def test_batch_norm_statistics_are_none_of_its_business(name: str) -> None:
    statistics = norm_federation(make(name), rounds=1).run().recorder.borders[0]
    plain = norm_federation(make("fedavg"), rounds=1).run().recorder.borders[0]
    assert torch.equal(statistics.buffers, plain.buffers)
    assert torch.equal(statistics.counters, plain.counters)


@pytest.mark.parametrize("sums", [SumSettings(None), SumSettings(30)], ids=["float32", "coarse grid"])
def test_other_sums_are_close(name: str, sums: SumSettings) -> None:
    exact, other = run(name), run(name, sums=sums)
    assert (exact.weights - other.weights).abs().max() < 1e-3
