"""Parameters that the solver is told to leave alone stay where they are, whatever the federated rule remembers."""

from __future__ import annotations

import pytest
import torch

from fedhpc import registry
from fedhpc.federated.algorithm import FederatedAlgorithm
from tests.federated.federation import Federation, federate

RULES = registry.names("fedhpc.federated.algorithms")
FROZEN = (0, 1)
"""The first layer: its weight and its bias, at the front of the vector."""


def rule(name: str) -> FederatedAlgorithm:
    algorithm: FederatedAlgorithm = registry.load("fedhpc.federated.algorithms", name).ALGORITHM()
    return algorithm


def two_stages(name: str) -> tuple[Federation, Federation, int]:
    """Three rounds of all layers, then three with the first one frozen; and how many elements that has."""
    first = federate(rule(name), rounds=3).run()
    first.trainer.solver.freeze(FROZEN)
    second = federate(rule(name), rounds=6, trainer=first.trainer)
    second.engine.continue_from(first.engine)
    return first, second, first.trainer.vector.layout[FROZEN[-1]].stop


@pytest.mark.parametrize("name", RULES)
def test_a_frozen_layer_moves_neither_at_the_clients_nor_on_the_server(name: str) -> None:
    first, second, size = two_stages(name)
    second.run()
    before, after = first.recorder.borders[-1], second.recorder.borders[-1]
    assert (before.round, after.round) == (3, 6)
    for vector, values in after.vectors.items():
        assert torch.equal(values[:size], before.vectors[vector][:size]), vector
    assert not torch.equal(after.vectors["weights"][size:], before.vectors["weights"][size:])
    for client, kept in after.clients.items():
        for vector, values in kept.items():
            assert torch.equal(values[:size], before.clients[client][vector][:size]), vector


@pytest.mark.parametrize("name", RULES)
def test_what_a_rule_remembers_of_a_layer_can_be_forgotten(name: str) -> None:
    first, second, size = two_stages(name)
    old = {n: v.clone() for n, v in first.engine.server.vectors.items()}  # type: ignore[union-attr]
    second.engine.forget([slice(0, size)])
    server = second.engine.server
    assert server is not None
    fresh = rule(name).init(server.vectors["weights"])
    for vector, values in server.vectors.items():
        expected = fresh[vector] if vector in fresh else old[vector]
        assert torch.equal(values[:size], expected[:size]), vector
        assert torch.equal(values[size:], old[vector][size:]), vector
    for client in second.engine.states.clients():
        for vector, values in second.engine.states.get(client).items():
            assert not values[:size].any(), vector
            assert values[size:].any(), vector
