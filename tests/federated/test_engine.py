"""The round loop: what travels, fresh optimizers and streams, stop and resume."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from fedhpc import registry
from fedhpc.comm.world import SoloWorld
from fedhpc.data.samples import Batch, Samples
from fedhpc.federated.algorithms.feddyn import FedDyn
from fedhpc.federated.algorithms.scaffold import Scaffold
from fedhpc.federated.host import SumSettings
from fedhpc.federated.state import Snapshot
from fedhpc.objectives.base import StepReport
from fedhpc.objectives.erm import Erm
from tests.federated.federation import (
    ALGORITHMS,
    Clients,
    Federation,
    NormNet,
    federate,
    make_clients,
    mlp,
    norm_federation,
    same,
)


@pytest.mark.parametrize("name", registry.names("fedhpc.federated.algorithms"))
@pytest.mark.parametrize("model", [mlp, lambda: NormNet().double()], ids=["mlp", "batch norm"])
def test_a_round_is_one_broadcast_and_one_reduce(name: str, model: Any) -> None:
    algorithm = registry.load("fedhpc.federated.algorithms", name).ALGORITHM()
    f = federate(algorithm, clients=make_clients((6, 10, 14)), rounds=3, model=model()).run()
    assert f.world.calls == {"broadcast": 4, "reduce": 3}  # the last broadcast is the final model's


@pytest.mark.parametrize("buffers", ["average", "keep_local", "keep_global"])
def test_buffer_policies_cost_no_further_call(buffers: Any) -> None:
    f = federate(model=NormNet().double(), clients=make_clients((6, 10)), sums=SumSettings(buffers=buffers)).run()
    assert f.world.calls == {"broadcast": 3, "reduce": 2}


def test_evaluating_what_was_just_broadcast_sends_nothing_more() -> None:
    f = federate(rounds=3, settings={"evaluate_every": 1}).run()
    assert f.world.calls == {"broadcast": 4, "reduce": 3}
    f = federate(rounds=3, settings={"evaluate_every": 1, "evaluated_model": "avg_selected"}).run()
    assert f.world.calls == {"broadcast": 8, "reduce": 3}


@pytest.mark.parametrize(
    "optimizer",
    [functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9), functools.partial(torch.optim.Adam, lr=0.1)],
    ids=["momentum", "adam"],
)
def test_no_optimizer_state_survives_a_client_or_a_round(optimizer: Any) -> None:
    # The second of two runs that start where the first round ended must take the very same second round.
    both = federate(rounds=2, optimizer=optimizer, cohorts=[[0, 1, 2], [0, 1, 2]]).run()
    again = federate(rounds=2, optimizer=optimizer, cohorts=[[0, 1, 2], [0, 1, 2]])
    again.engine.progress.round = 1
    again.weights.copy_(both.recorder.borders[0].vectors["weights"])
    again.run()
    assert torch.equal(again.weights, both.weights)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_order_in_which_clients_train_does_not_matter(name: str) -> None:
    clients = make_clients((6, 9, 12, 8))

    def run(order: list[int]) -> Federation:
        f = federate(ALGORITHMS[name], clients=clients, model=mlp(dropout=0.5), rounds=3, lr=0.2)
        real = f.engine._host.train

        def reordered(round: int, cohort: Any, mine: Any, *rest: Any) -> Any:
            assert list(mine) == [0, 1, 2, 3]
            return real(round, cohort, order, *rest)

        f.engine._host.train = reordered  # type: ignore[method-assign]
        return f.run()

    first = run([0, 1, 2, 3])
    for order in ([3, 2, 1, 0], [2, 0, 3, 1]):
        other = run(order)
        assert all(same(a, b) for a, b in zip(first.recorder.borders, other.recorder.borders, strict=True))


def test_the_target_ends_the_run_and_is_noted_once() -> None:
    f = federate(rounds=50, cohorts=[[0, 1, 2]] * 50, settings={"target": 0.0001, "evaluate_every": 1})
    outcome = f.engine.run()
    assert outcome.status == "finished"
    reached = f.engine.progress.reached
    assert reached is not None
    assert reached[0] == outcome.progress.round < 50
    assert reached[1] == outcome.progress.seconds_train


@pytest.mark.parametrize("every", [1, 2, 3, 7])
def test_the_last_round_is_always_evaluated(every: int) -> None:
    f = federate(rounds=5, settings={"evaluate_every": every}).run()
    assert sorted({r for w, _, r, _ in f.sink.records if w == "client_accuracy_mean"})[-1] == 5


class StopAfter:
    """Someone asks for a stop, from the n-th question on."""

    def __init__(self, asked: int) -> None:
        self.left = asked

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


class LastSnapshot:
    """Keeps what a checkpoint would hold: a deep copy of the newest snapshot."""

    def __init__(self) -> None:
        self.kept: list[Snapshot] = []

    def save(self, snapshot: Snapshot) -> None:
        self.kept.append(copy.deepcopy(snapshot))

    def put_into(self, f: Federation) -> Federation:
        snapshot = copy.deepcopy(self.kept[-1])
        f.engine.progress, f.engine.server = snapshot.progress, snapshot.server
        f.engine.states, f.engine.costs = snapshot.states, snapshot.costs
        return f


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("asked", range(7))
def test_stopped_anywhere_and_resumed_ends_in_the_same_bits_and_records(name: str, asked: int) -> None:
    cohorts = [[0, 1], [1, 2], [0, 2], [0, 1, 2]]
    options: dict[str, Any] = {
        "cohorts": cohorts,
        "rounds": 4,
        "lr_decay": 0.9,
        "model": None,
        "settings": {"evaluate_every": 2, "checkpoint_every": 0, "follow_all": True, "evaluated_model": "avg_all"},
    }

    def build(saver: Any = None, stop: Any = lambda: False) -> Federation:
        chosen = {**options, "model": NormNet().double(), "clients": make_clients((6, 10, 14))}
        return federate(ALGORITHMS[name], saver=saver, stop_requested=stop, **chosen)

    whole = build().run()
    saver = LastSnapshot()
    stopped = build(saver, StopAfter(asked))
    outcome = stopped.engine.run()
    if outcome.status == "finished":
        assert asked >= 6
        return
    assert len(saver.kept) == 1
    resumed = saver.put_into(build()).run()
    assert torch.equal(resumed.weights, whole.weights)
    assert resumed.engine.server is not None
    assert whole.engine.server is not None
    assert torch.equal(resumed.engine.server.model("avg_all"), whole.engine.server.model("avg_all"))
    evaluations = [(r, v) for f in (stopped, resumed) for w, v, r, _ in f.sink.records if w == "client_accuracy_mean"]
    assert evaluations == [(r, v) for w, v, r, _ in whole.sink.records if w == "client_accuracy_mean"]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_warm_up_rounds_leave_no_trace(name: str) -> None:
    def build() -> Federation:
        cohorts = [[0, 1], [1, 2], [0, 2], [0, 1, 2]]
        return norm_federation(ALGORITHMS[name], cohorts=cohorts, rounds=4, settings={"follow_all": True})

    cold, warm = build().run(), build()
    before = warm.weights.clone()
    warm.engine.warm_up(2)
    assert torch.equal(warm.weights, before)
    assert warm.sink.records == []
    assert warm.engine.progress.round == 0
    assert warm.engine.progress.seconds_train == 0
    assert warm.engine.states.clients() == []
    warm.run()
    assert all(same(a, b) for a, b in zip(cold.recorder.borders, warm.recorder.borders, strict=True))
    assert [r[:1] + r[2:] for r in warm.sink.records] == [r[:1] + r[2:] for r in cold.sink.records]


def test_a_run_may_go_on_past_its_target() -> None:
    settings = {"target": 0.0001, "stop_at_target": False, "evaluate_every": 1}
    f = federate(rounds=5, cohorts=[[0, 1, 2]] * 5, settings=settings).run()
    assert f.engine.progress.round == 5
    assert f.engine.progress.reached is not None
    assert f.engine.progress.reached[0] < 5


def test_checkpoints_come_at_their_rounds_and_not_at_once_after_a_resume() -> None:
    f = federate(rounds=7, settings={"checkpoint_every": 3}).run()
    assert [b.round for b in f.recorder.borders] == [3, 6]
    saver = LastSnapshot()
    federate(rounds=3, saver=saver, settings={"checkpoint_every": 3}).run()
    again = saver.put_into(federate(rounds=7, settings={"checkpoint_every": 3})).run()
    assert [b.round for b in again.recorder.borders] == [6]


def test_clocks_of_training_and_evaluation_are_apart() -> None:
    import time

    class Slow(SoloWorld):
        def gather(self, small: Any) -> Any:  # evaluation gathers, training does not
            time.sleep(0.05)
            return super().gather(small)

    def reads_slowly(x: Tensor, noise: torch.Generator | None, train: bool) -> Tensor:
        time.sleep(0 if train else 0.01)
        return x

    f = federate(rounds=2, world=Slow(), transform=reads_slowly, settings={"evaluate_every": 1}).run()
    assert f.engine.progress.seconds_evaluate >= 0.15
    assert f.engine.progress.seconds_train == pytest.approx(sum(f.sink.values("round_seconds")))
    totals = f.engine.clock.totals
    assert totals["evaluation"] == pytest.approx(f.engine.progress.seconds_evaluate, rel=0.2)
    assert 0.09 <= totals["evaluate"] <= totals["evaluation"] - 0.15  # of the clients alone, counted once


def test_an_error_in_one_client_says_whose() -> None:
    from fedhpc.timing import doing_of

    class Breaks(Erm):
        def backward(self, minibatches: list[Batch]) -> StepReport:
            if (minibatches[0].x == 99).any():
                raise RuntimeError("out of memory")
            return super().backward(minibatches)

    clients = make_clients()
    clients.trains[2].x.fill_(99)
    with pytest.raises(RuntimeError, match="out of memory") as caught:
        federate(clients=clients, objective=Breaks).run()
    assert doing_of(caught.value) == "train (client 2, round 1)"


def test_float32_sums_are_close_to_exact_ones() -> None:
    exact, plain = federate(Scaffold()).run(), federate(Scaffold(), sums=SumSettings(None)).run()
    assert 0 < (exact.weights - plain.weights).abs().max() < 1e-5


def test_a_float32_model_keeps_float64_server_state() -> None:
    clients = make_clients()
    single = Clients(
        [Samples(s.x.float(), s.y) for s in clients.trains], [Samples(s.x.float(), s.y) for s in clients.tests]
    )
    f = federate(FedDyn(alpha=0.1), clients=single, model=mlp().float()).run()
    assert f.server("mean_drift").dtype == torch.float64
    assert f.weights.dtype == torch.float64
    assert torch.equal(f.weights, f.weights.float().double())  # what is broadcast is what is kept
    assert all(v.dtype == torch.float32 for v in f.recorder.borders[-1].clients[0].values())


def test_many_clients_cost_no_memory_on_a_rank_but_their_state() -> None:
    f = federate(clients=make_clients((6,) * 40), cohorts=[[0, 39]], rounds=1).run()
    assert f.recorder.borders[0].clients == {}
    f = federate(Scaffold(), clients=make_clients((6,) * 40), cohorts=[[0, 39]], rounds=1).run()
    assert set(f.recorder.borders[0].clients) == {0, 39}
