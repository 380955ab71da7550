"""Who is at home where after ranks were lost, and what the server then knows of all clients."""

from __future__ import annotations

import pytest
import torch

from fedhpc.federated.algorithm import FederatedAlgorithm
from fedhpc.federated.algorithms.fedavg import FedAvg
from fedhpc.federated.algorithms.feddyn import FedDyn
from fedhpc.federated.algorithms.scaffold import Scaffold
from fedhpc.federated.host import LAST
from fedhpc.federated.placement import Placement
from tests.federated.federation import Federation, federate


def test_clients_of_lost_ranks_are_dealt_out_and_others_stay() -> None:
    before = Placement.build([10] * 12, 4)
    after = before.among([0, 1, 3])
    assert after.ranks == (0, 1, 2)
    renumbered = {0: 0, 1: 1, 3: 2}
    for client, home in enumerate(before.homes):
        if home in renumbered:
            assert after.homes[client] == renumbered[home]
    lost = [c for c, home in enumerate(before.homes) if home == 2]
    assert sorted(after.homes[c] for c in lost) == [0, 1, 2]


def test_a_root_that_hosts_nobody_still_hosts_nobody_and_takes_over_where_it_is_alone() -> None:
    before = Placement.build([10] * 6, 3, root_hosts=False)
    assert set(before.among([0, 2]).homes) == {1}
    assert set(before.among([0]).homes) == {0}


RULES = [FedAvg(), FedDyn(alpha=0.1), Scaffold(), Scaffold(profile="feddyn-repo")]


def means_hold(f: Federation, algorithm: FederatedAlgorithm) -> bool:
    """Whether what the server keeps of all clients is the mean of what they have."""
    server, sizes, all_sizes = f.engine.server, f.clients.num_train, sum(f.clients.num_train)
    assert server is not None
    assert server.avg_all is not None
    kept = [*((server.vectors[name], *mean) for name, mean in algorithm.means.items())]
    kept += [(server.avg_all, LAST, algorithm.traffic.summed["delta"])]
    for vector, own, kind in kept:
        shares = [n / all_sizes if kind == "samples" else 1 / len(sizes) for n in sizes]
        mean = sum(share * f.engine.states.get(c)[own] for c, share in enumerate(shares))
        if not torch.allclose(vector, mean, rtol=0, atol=1e-10):
            return False
    return True


@pytest.mark.parametrize("algorithm", RULES, ids=repr)
def test_means_over_clients_hold_and_are_formed_anew_after_a_loss(algorithm: FederatedAlgorithm) -> None:
    f = federate(algorithm, rounds=3, cohorts=[[0, 1, 2], [0, 2], [1, 2]], settings={"follow_all": True}).run()
    assert means_hold(f, algorithm)
    f.engine.placement = Placement((0, 1, 0), (0, 1))
    f.engine.states._states.pop(1)  # it was at home on the lost rank
    assert not means_hold(f, algorithm)
    f.engine.rehome([0])
    assert f.engine.survive(lambda clients: {}) == [1]
    assert means_hold(f, algorithm)
