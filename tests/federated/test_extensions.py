"""Extensions of local training in the engine: what a client carries comes back to it, and only to it."""

from __future__ import annotations

import torch

from fedhpc.federated.algorithms.fedavg import FedAvg
from fedhpc.federated.engine import Engine
from fedhpc.train.extension import Carried, ClientExtension
from tests.federated.federation import Federation, federate


class Counting(ClientExtension):
    """Carries its client's number of steps, and notes what it is shown."""

    def __init__(self) -> None:
        self.steps = 0.0
        self.placed: list[tuple[int, int, float]] = []

    def initial(self) -> Carried:
        return {"_steps": torch.zeros(1)}

    def begin(self, client: int, round: int, carried: Carried) -> None:
        self.steps = float(carried["_steps"])

    def after_step(self, num_steps: int) -> None:
        self.steps += 1

    def end(self) -> Carried:
        return {"_steps": torch.tensor([self.steps])}

    def place(self, client: int, round: int, carried: Carried) -> None:
        self.placed.append((client, round, float(carried["_steps"])))


def extended(extension: ClientExtension, **options: object) -> Federation:
    """A federation whose engine has an extension."""
    made = federate(**options)  # type: ignore[arg-type]
    old = made.engine
    made.engine = Engine(
        made.world, FedAvg(), made.trainer, made.clients, old._cohorts, old._settings, made.sink,
        saver=made.recorder, extensions=[extension],
    )  # fmt: skip
    return made


def test_a_client_gets_back_what_it_carried() -> None:
    counting = Counting()
    made = extended(counting, cohorts=[[0, 1], [1, 2], [0, 1]], rounds=3, settings={"evaluate_every": 3}).run()
    steps = {c: float(made.engine.states.get(c)["_steps"]) for c in range(3)}
    per_round = [made.trainer.batches.num_steps(n) for n in made.clients.num_train]
    assert steps == {0: 2 * per_round[0], 1: 3 * per_round[1], 2: per_round[2]}
    assert [p for p in counting.placed if p[1] == 3] == [(c, 3, steps[c]) for c in range(3)]
    assert made.recorder.borders[-1].clients[1]["_steps"] > 0, "a checkpoint has it"


def test_an_extension_that_does_nothing_changes_nothing() -> None:
    plain, with_one = federate(rounds=3).run(), extended(ClientExtension(), rounds=3).run()
    assert torch.equal(plain.weights, with_one.weights)


class Own(ClientExtension):
    """Every client keeps its whole model."""

    moves_start = True

    def __init__(self, vector: object) -> None:
        self.vector = vector

    def initial(self) -> Carried:
        return {"_own": self.vector.weights.clone()}  # type: ignore[attr-defined]

    def begin(self, client: int, round: int, carried: Carried) -> None:
        self.vector.weights.copy_(carried["_own"])  # type: ignore[attr-defined]

    def end(self) -> Carried:
        return {"_own": self.vector.weights}  # type: ignore[attr-defined]


def test_a_client_with_its_own_model_trains_as_if_alone() -> None:
    made = federate(rounds=3)
    both = extended(Own(made.trainer.vector), rounds=3, trainer=made.trainer).run()
    alone = federate(rounds=3, cohorts=[[1]] * 3).run()
    error = (both.engine.states.get(1)["_own"] - alone.recorder.local[2, 1]).abs().max()
    assert error < 1e-10, "but for the grid that a server's model lies on"


def test_an_engine_goes_on_where_another_ended() -> None:
    whole = federate(rounds=4, settings={"evaluate_every": 2}).run()
    first = federate(rounds=2, settings={"evaluate_every": 2}).run()
    second = federate(rounds=4, trainer=first.trainer, settings={"evaluate_every": 2})
    second.engine.continue_from(first.engine)
    second.run()
    assert torch.equal(whole.weights, second.weights)
    assert second.engine.progress.round == 4
