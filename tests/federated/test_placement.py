"""Who trains where: nobody is lost or doubled, no rank is much busier than it must be, home is kept if free."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fedhpc.federated.placement import CostTable, Placement, makespan, spread


def optimum(costs: list[float], size: int) -> float:
    """Smallest possible load of the busiest rank, by trying everything."""
    return min(makespan(costs, ranks) for ranks in itertools.product(range(size), repeat=len(costs)))


def random_costs(seed: int, n: int) -> list[float]:
    rng = np.random.default_rng(seed)
    return [float(v) for v in (rng.exponential(1, n) if seed % 2 else rng.integers(1, 6, n))]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("size", [2, 3])
def test_plans_are_within_four_thirds_of_the_best(seed: int, size: int) -> None:
    costs = random_costs(seed, 7)
    placement = Placement.build([10] * 30, size)
    rng = np.random.default_rng(seed)
    cohort = sorted(int(c) for c in rng.choice(30, 7, replace=False))
    ranks = placement.plan(cohort, costs)
    bound = (4 / 3 - 1 / (3 * size)) * optimum(costs, size)
    assert makespan(costs, ranks) <= bound * (1 + 1e-8)
    assert makespan(costs, spread(costs, range(size))) <= bound * (1 + 1e-8)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("size", "cohort_size"), [(1, 5), (2, 10), (4, 10), (16, 10), (7, 40)])
def test_every_client_of_the_cohort_is_placed_once_on_a_rank_that_hosts(seed: int, size: int, cohort_size: int) -> None:
    rng = np.random.default_rng(seed)
    hosts = bool(seed % 2)
    placement = Placement.build([int(n) for n in rng.integers(1, 500, 50)], size, root_hosts=hosts)
    cohort = sorted(int(c) for c in rng.choice(50, cohort_size, replace=False))
    costs = [float(v) for v in rng.exponential(1, cohort_size)]
    ranks = placement.plan(cohort, costs)
    assert len(ranks) == cohort_size
    allowed = set(range(size)) if hosts or size == 1 else set(range(1, size))
    assert set(ranks) <= allowed
    assert makespan(costs, ranks) <= makespan(costs, spread(costs, sorted(allowed))) * (1 + 1e-8)
    assert max(ranks.count(r) for r in allowed) >= cohort_size / len(allowed)


def test_every_client_has_one_home_and_ranks_hold_about_equally_many_samples() -> None:
    sizes = [int(n) for n in np.random.default_rng(0).integers(10, 100, 60)]
    placement = Placement.build(sizes, 4)
    homes = [placement.at_home(rank) for rank in range(4)]
    assert sorted(c for found in homes for c in found) == list(range(60))
    loads = [sum(sizes[c] for c in found) for found in homes]
    assert max(loads) <= 1.02 * sum(sizes) / 4


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_root_that_hosts_nobody_stays_free(size: int) -> None:
    placement = Placement.build([10] * 6, size, root_hosts=False)
    assert placement.at_home(0) == ([*range(6)] if size == 1 else [])
    assert set(placement.plan(range(6), [1.0] * 6)) == ({0} if size == 1 else set(range(1, size)))


def test_more_ranks_than_clients_leave_ranks_empty() -> None:
    placement = Placement.build([5, 5], 4)
    assert [placement.at_home(r) for r in range(4)] == [[0], [1], [], []]


def test_pinned_clients_never_leave_home() -> None:
    placement = Placement.build([10] * 8, 4, balanced=False)
    cohort = [c for c in range(8) if placement.homes[c] in (0, 1)]
    assert placement.plan(cohort, [100.0, 1.0, 1.0, 1.0]) == [placement.homes[c] for c in cohort]


def test_the_same_cohort_balanced_uses_all_ranks() -> None:
    placement = Placement.build([10] * 8, 4)
    cohort = [c for c in range(8) if placement.homes[c] in (0, 1)]
    assert sorted(placement.plan(cohort, [1.0] * 4)) == [0, 1, 2, 3]


def test_who_can_stay_at_home_for_free_stays() -> None:
    placement = Placement.build([10] * 8, 4)
    assert placement.plan(range(8), [1.0] * 8) == list(placement.homes)
    cohort = [c for r in range(4) for c in placement.at_home(r)[:1]]
    assert placement.plan(cohort, [3.0, 1.0, 2.0, 4.0]) == [placement.homes[c] for c in cohort]


def test_a_plan_is_a_function_of_its_numbers() -> None:
    placement = Placement.build([10] * 20, 3)
    costs = random_costs(1, 20)
    assert placement.plan(range(20), costs) == placement.plan(range(20), list(costs))


def test_longest_work_goes_first() -> None:
    costs = [1.0, 1.0, 1.0, 3.0]
    assert makespan(costs, spread(costs, [0, 1])) == 3.0  # in the order given it would be 4


def test_spread_names_ranks_not_positions() -> None:
    assert set(spread([1.0, 1.0], [3, 5])) == {3, 5}


def test_unmeasured_clients_are_expected_by_their_samples() -> None:
    table = CostTable([10, 20, 40, 0])
    assert table.expected([0, 1, 2]) == [10.0, 20.0, 40.0]
    assert table.expected([3]) == [1.0]  # an empty client still costs something
    table.update([0, 1], [1.0, 4.0])
    assert table.expected([0, 1]) == [1.0, 4.0]
    assert table.expected([2]) == pytest.approx([40 * 5.0 / 30])


def test_measurements_that_are_none_are_not_taken() -> None:
    table = CostTable([10, 20])
    table.update([0], [2.0])
    table.update([0, 1], [0.0, float("nan")])
    assert table.seconds[0] == 2.0
    assert np.isnan(table.seconds[1])
    table.update([0], [3.0])
    assert table.expected([0]) == [3.0]
