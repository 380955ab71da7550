"""Evaluation between rounds changes nothing, and shows the model that was asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedhpc.data.batches import ShuffledBatches, SupportQueryBatches
from fedhpc.federated.algorithms.fedavg import FedAvg
from fedhpc.federated.algorithms.feddyn import FedDyn
from fedhpc.federated.personalize import AdaptByGradient, NearestPrototype
from tests.federated.federation import (
    ALGORITHMS,
    Federation,
    federate,
    make_clients,
    mlp,
    norm_federation,
    same,
)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("personal", ["none", "maml", "proto"])
def test_evaluation_changes_nothing(name: str, personal: str) -> None:
    def run(every: int) -> Federation:
        chosen = {
            "none": {},
            "maml": {"objective": "maml", "options": {"inner_lr": 0.1}, "personalizer": AdaptByGradient(0.1, 3)},
            "proto": {"objective": "proto", "personalizer": NearestPrototype(3)},
        }[personal]
        plan = ShuffledBatches(0, 4, epochs=1) if personal == "none" else SupportQueryBatches(0, 4, steps=3)
        return norm_federation(
            ALGORITHMS[name], rounds=3, batches=plan, settings={"evaluate_every": every}, **chosen
        ).run()

    often, never = run(1), run(100)
    assert len(often.sink.values("client_accuracy_mean")) == 4
    assert len(never.sink.values("client_accuracy_mean")) == 2
    assert all(same(a, b) for a, b in zip(often.recorder.borders, never.recorder.borders, strict=True))


def test_evaluation_draws_from_no_stream() -> None:
    f = federate(model=mlp(dropout=0.5), personalizer=AdaptByGradient(0.1, 2))
    f.engine._broadcast(f.engine._down.order)
    before = torch.get_rng_state()
    f.engine._examiner.examine(f.engine.snapshot(), f.engine.placement, f.engine._down, f.engine._sink, lambda: False)
    assert torch.equal(torch.get_rng_state(), before)


def test_every_client_is_evaluated_also_those_that_never_took_part() -> None:
    f = federate(cohorts=[[0]], rounds=1).run()
    assert [at["client"] for w, _, r, at in f.sink.records if w == "client_accuracy" and r == 1] == [0, 1, 2]


def test_the_three_models_are_kept_apart() -> None:
    f = federate(
        FedDyn(alpha=0.1), clients=make_clients((6, 9, 12)), cohorts=[[0, 1], [2]], settings={"follow_all": True}
    )
    f.run()
    server = f.engine.server
    assert server is not None
    models = [server.model(w) for w in ("broadcast_next", "avg_selected", "avg_all")]
    torch.testing.assert_close(models[1], f.recorder.local[1, 2], rtol=0, atol=1e-11)
    last = (f.recorder.local[0, 0] + f.recorder.local[0, 1] + f.recorder.local[1, 2]) / 3
    torch.testing.assert_close(models[2], last, rtol=0, atol=1e-11)
    torch.testing.assert_close(models[0], models[1] + server.vectors["mean_drift"], rtol=0, atol=1e-11)
    assert min(float((a - b).abs().max()) for a, b in ((models[0], models[1]), (models[1], models[2]))) > 1e-3


@pytest.mark.parametrize("which", ["broadcast_next", "avg_selected", "avg_all"])
def test_the_evaluated_model_is_the_one_asked_for(which: Any) -> None:
    f = federate(
        FedDyn(alpha=0.1),
        clients=make_clients(num_test=200),
        cohorts=[[0, 1], [2]],
        lr=0.5,
        settings={"evaluated_model": which, "follow_all": True},
    ).run()
    assert f.engine.server is not None
    model = mlp().eval()
    torch.nn.utils.vector_to_parameters(f.engine.server.model(which), model.parameters())
    for client in range(3):
        data = f.clients.test(client)
        expected = float((model(data.x).argmax(1) == data.y).double().mean())
        assert f.sink.values("client_accuracy", client=client, model=which)[-1] == expected


def test_avg_all_counts_clients_that_never_took_part_with_the_initial_model() -> None:
    f = federate(FedAvg(weighting="uniform"), cohorts=[[1]], rounds=1, settings={"follow_all": True})
    start = f.weights.clone()
    f.run()
    assert f.engine.server is not None
    expected = (2 * start + f.recorder.local[0, 1]) / 3
    torch.testing.assert_close(f.engine.server.model("avg_all"), expected, rtol=0, atol=1e-11)
