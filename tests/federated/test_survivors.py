"""Who is at home where after ranks were lost."""

from __future__ import annotations

from fedhpc.federated.placement import Placement


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
