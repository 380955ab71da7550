"""What a rank holds, and what it pickles, does not grow with the clients, the rounds or the model."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from fedhpc.comm.world import SoloWorld
from fedhpc.commands._saving import RunSaver
from fedhpc.federated.algorithms.fedavg import FedAvg
from fedhpc.federated.algorithms.scaffold import Scaffold
from fedhpc.runs.checkpoint import CheckpointFolder
from fedhpc.runs.records import RecordWriter
from tests.federated.federation import Federation, federate, make_clients, mlp

WIDE = (500,)
EVALUATE = {"evaluate_every": 1}


def live_bytes() -> int:
    """Bytes of all tensors that this process holds."""
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if issubclass(type(thing), Tensor)]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


class Meter:
    """Measures what is held while some clients train; the engine's observer."""

    def __init__(self, *when: tuple[int, int]) -> None:
        self.held: dict[tuple[int, int], int] = dict.fromkeys(when, 0)

    def client_done(self, round: int, client: int, weights: Tensor) -> None:
        if (round, client) in self.held:
            self.held[round, client] = live_bytes()


def measured(f: Federation, *when: tuple[int, int]) -> list[int]:
    meter = Meter(*when)
    f.engine._host._observer, f.engine._saver = meter, None
    f.run()
    return list(meter.held.values())


def model_bytes(f: Federation) -> int:
    return f.trainer.vector.weights.nbytes


def test_the_last_client_of_a_later_round_needs_no_more_than_the_fifth_of_the_first() -> None:
    f = federate(clients=make_clients((4,) * 20), rounds=3, model=mlp(WIDE), settings=EVALUATE)
    early, late, last = measured(f, (0, 4), (0, 19), (2, 19))
    assert early > 3 * model_bytes(f), "the measurement sees models"
    assert abs(late - early) < model_bytes(f) / 2
    assert abs(last - early) < model_bytes(f) / 2


def test_only_state_that_an_algorithm_declares_is_held_for_each_client() -> None:
    f = federate(Scaffold(), clients=make_clients((4,) * 20), rounds=2, model=mlp(WIDE))
    early, late, last = measured(f, (0, 4), (0, 19), (1, 19))
    assert late - early == pytest.approx(15 * model_bytes(f), rel=0.1), "one vector for each client"
    assert abs(last - late) < 1.5 * model_bytes(f), "the states of one round take the place of those before"


def test_a_thousand_clients_cost_what_ten_do() -> None:
    def cost(number: int) -> int:
        clients, before = make_clients((2,) * number, num_test=1), live_bytes()
        f = federate(clients=clients, cohorts=[[0, 1, 2]], rounds=1, model=mlp(WIDE))
        f.engine._host._observer = None
        f.run()
        kept.append(f)
        return live_bytes() - before

    kept: list[Federation] = []
    few, many = cost(10), cost(1000)
    assert few > 3 * model_bytes(kept[0])
    assert abs(many - few) < model_bytes(kept[0]) / 2


class Pickling(SoloWorld):
    """Notes how many bytes each object would be that travels by pickle."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def _noted(self, small: Any) -> Any:
        self.sizes.append(len(pickle.dumps(small)))
        return small

    def gather(self, small: Any) -> list[Any]:
        return [self._noted(small)]

    def share(self, small: Any) -> Any:
        return self._noted(small)

    def gather_node(self, small: Any) -> list[Any]:
        return [self._noted(small)]


def pickled(folder: Path, make: Callable[[], FedAvg | Scaffold], hidden: tuple[int, ...], clients: int = 200) -> int:
    """Bytes pickled in a run of two rounds, each evaluated and saved."""
    folder.mkdir()
    world = Pickling()
    trains = make_clients((2,) * clients, num_test=1)
    cohorts = [list(range(20))] * 2
    f = federate(make(), world=world, clients=trains, cohorts=cohorts, model=mlp(hidden), settings=EVALUATE)
    with RecordWriter(folder / "metrics.jsonl") as writer:
        f.engine._saver = RunSaver(world, CheckpointFolder(folder / "checkpoints", keep=1), writer)
        f.run()
    assert len(world.sizes) > 5
    return sum(world.sizes)


@pytest.mark.parametrize("make", [FedAvg, Scaffold])
def test_what_is_pickled_is_small_and_does_not_depend_on_the_model(
    make: Callable[[], FedAvg | Scaffold], tmp_path: Path
) -> None:
    """Weights and client state travel as buffers: pickles end at 2 GB and are copied several times on the way."""
    small, large = (pickled(tmp_path / str(hidden[0]), make, hidden) for hidden in ((5,), WIDE))
    assert abs(large - small) < 100
    assert large < 50_000, "two rounds of 20 of 200 clients"
