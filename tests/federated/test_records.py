"""What is written down about rounds and evaluations."""

from __future__ import annotations

import pytest

from fedhpc.federated.algorithm import Cohort
from fedhpc.federated.algorithms.feddyn import FedDyn
from fedhpc.federated.algorithms.scaffold import Scaffold
from fedhpc.federated.records import RoundTimes, record_round
from fedhpc.federated.server import RoundSummary
from fedhpc.federated.state import Progress
from tests.federated.federation import MemorySink, federate, make_clients, make_trainer, mlp

PER_ROUND = ["train_loss", "round_seconds", "wait_seconds", "communicate_seconds", "imbalance", "waiting_share"]
PER_ROUND += ["bytes_moved", "models_transmitted", "lr", "cohort_size"]
EVALUATION = [f"client_accuracy_{name}" for name in ("mean", "min", "max", "worst_decile", "std")] + ["test_loss"]


def round_records(ranks: list[int], seconds: list[float], hosts: tuple[int, ...]) -> MemorySink:
    clients = tuple(range(len(ranks)))
    summary = RoundSummary(Cohort(0, clients, clients, 9), tuple(seconds), 1.0, {})
    sink = MemorySink()
    times = RoundTimes(2.0, 0.5, 0.25)
    record_round(sink, Progress(1, 2.0), summary, ranks, hosts, times, 80, 2, make_trainer(mlp()))
    return sink


@pytest.mark.parametrize(
    ("ranks", "seconds", "hosts", "imbalance", "waiting"),
    [
        ([0, 1], [2.0, 2.0], (0, 1), 1.0, 0.0),
        ([0, 0, 1], [1.0, 2.0, 1.0], (0, 1), 1.5, 1 / 3),
        ([0, 0], [1.0, 2.0], (0,), 1.0, 0.0),
        ([1, 2], [2.0, 2.0], (1, 2), 1.0, 0.0),  # a root that hosts nobody is not idle, it is the server
        ([0, 1], [2.0, 2.0], (0, 1, 2, 3), 2.0, 0.5),  # two of four ranks had nothing to do
        ([0], [0.0], (0, 1), 1.0, 0.0),
    ],
)
def test_imbalance_counts_every_rank_that_could_train(
    ranks: list[int], seconds: list[float], hosts: tuple[int, ...], imbalance: float, waiting: float
) -> None:
    sink = round_records(ranks, seconds, hosts)
    assert sink.values("imbalance") == [pytest.approx(imbalance)]
    assert sink.values("waiting_share") == [pytest.approx(waiting)]


def test_a_round_names_who_took_how_long_where() -> None:
    sink = round_records([0, 1], [0.5, 0.25], (0, 1))
    assert sink.values("client_seconds", client=1, rank=1) == [0.25]
    assert sink.values("round_seconds") == [2.0]
    assert sink.values("wait_seconds") == [0.5]
    assert sink.values("communicate_seconds") == [0.25]
    assert sink.values("bytes_moved") == [80]


def test_every_round_and_evaluation_is_complete() -> None:
    f = federate(rounds=3, lr=0.2, lr_decay=0.5, settings={"evaluate_every": 2}).run()
    for what in PER_ROUND:
        assert [r for w, _, r, _ in f.sink.records if w == what] == [1, 2, 3], what
    for what in EVALUATION:
        assert [(r, at["model"]) for w, _, r, at in f.sink.records if w == what] == [
            (r, "broadcast_next") for r in (0, 2, 3)
        ], what
    assert f.sink.values("lr") == [0.2, 0.1, 0.05]
    assert f.sink.values("cohort_size") == [3, 3, 3]
    assert len(f.sink.values("client_accuracy", model="broadcast_next")) == 9
    assert f.sink.values("diverged") == []
    assert len(f.sink.values("evaluate_seconds")) == 3


def test_recorded_mean_is_the_mean_of_the_recorded_list() -> None:
    f = federate(clients=make_clients((6, 9, 12), num_test=7)).run()
    for round in (0, 2):
        listed = [v for w, v, r, _ in f.sink.records if w == "client_accuracy" and r == round]
        (mean,) = [v for w, v, r, _ in f.sink.records if w == "client_accuracy_mean" and r == round]
        assert mean == pytest.approx(sum(listed) / 3)


def test_the_evaluated_model_is_named() -> None:
    f = federate(FedDyn(0.1), settings={"evaluated_model": "avg_all"}).run()
    assert {at["model"] for w, _, _, at in f.sink.records if w.startswith("client_accuracy")} == {"avg_all"}


def test_models_and_bytes_are_those_that_travel() -> None:
    plain, scaffold = federate(FedDyn(0.1)).run(), federate(Scaffold()).run()
    assert plain.sink.values("models_transmitted") == [3, 3]  # one model up per client
    assert scaffold.sink.values("models_transmitted") == [6, 6]  # weights and control
    size = len(plain.trainer.vector) * 8
    for f, models in ((plain, 2), (scaffold, 4)):  # down and up
        for moved in f.sink.values("bytes_moved"):
            assert models * size <= moved <= models * size + 400  # and small things in the tails
