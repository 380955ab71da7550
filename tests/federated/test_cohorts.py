"""Who takes part depends on seed and round alone."""

from __future__ import annotations

import numpy as np
import pytest

from fedhpc.errors import ConfigError
from fedhpc.federated.cohorts import ListedCohorts, SampledCohorts, cohort_size


def test_a_cohort_is_ascending_without_repeats_and_of_its_size() -> None:
    plan = SampledCohorts(100, 10, seed=0)
    for round in range(50):
        cohort = plan.clients(round)
        assert list(cohort) == sorted(set(cohort))
        assert len(cohort) == plan.largest == 10
        assert set(cohort) <= set(range(100))
        assert all(type(c) is int for c in cohort)


def test_rounds_and_seeds_draw_anew_in_any_order() -> None:
    plan = SampledCohorts(100, 10, seed=0)
    forward = [plan.clients(r) for r in range(5)]
    assert [plan.clients(r) for r in (4, 3, 2, 1, 0)] == forward[::-1]
    assert len(set(forward)) == 5
    assert SampledCohorts(100, 10, seed=1).clients(0) != forward[0]


def test_every_client_has_the_same_chance() -> None:
    plan = SampledCohorts(20, 5, seed=3)
    counts = np.bincount([c for r in range(2000) for c in plan.clients(r)], minlength=20)
    assert abs(counts - 500).max() < 5 * (500 * 0.75) ** 0.5


def test_the_whole_federation_needs_no_draw() -> None:
    assert SampledCohorts(4, 4, seed=0).clients(9) == (0, 1, 2, 3)


@pytest.mark.parametrize("size", [0, -1, 5])
def test_impossible_sizes_are_refused_with_the_numbers(size: int) -> None:
    with pytest.raises(ConfigError, match=rf"cohort.size must lie between 1 and the 4 clients, got {size}"):
        SampledCohorts(4, size, seed=0)


@pytest.mark.parametrize(
    ("size", "fraction", "expected"),
    [
        (None, None, 100),
        (7, None, 7),
        (None, 0.29, 29),  # 0.29 * 100 is 28.999999999999996
        (None, 0.1, 10),
        (None, 1.0, 100),
        (None, 0.001, 1),
    ],
)
def test_size_from_the_configuration(size: int | None, fraction: float | None, expected: int) -> None:
    assert cohort_size(100, size, fraction) == expected


def test_listed_cohorts_do_not_depend_on_the_order_of_the_list() -> None:
    plan = ListedCohorts([[3, 1], [2]])
    assert plan.clients(0) == (1, 3)
    assert plan.largest == 2


@pytest.mark.parametrize(
    ("rounds", "message"), [([[0], []], "round 2 has no"), ([[1, 2, 1]], "round 1 names a client")]
)
def test_listed_cohorts_that_make_no_sense_are_refused(rounds: list[list[int]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ListedCohorts(rounds)
