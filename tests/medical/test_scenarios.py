"""Scenarios in mode `fixed`: nothing twice, no patient divided, everything accounted for, or an error with numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedhpc import registry
from fedhpc.data.table import SampleTable
from fedhpc.data.timeline import PARTS, Timeline
from fedhpc.errors import ConfigError
from fedhpc.medical.apportion import largest_remainder
from fedhpc.medical.config import SCENARIOS
from fedhpc.medical.scenarios._fixed import demand
from tests.medical.scenario_tables import KINDS, TABLE, make, make_table, sizes, used


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("repeated", "group_ratios")])
@pytest.mark.parametrize("clients", [3, 10])
@pytest.mark.parametrize(
    ("groups", "edges"), [(("age",), ()), (("age",), (40, 60, 75)), (("age", "sex"), ())], ids=["2", "4", "dual"]
)
@pytest.mark.parametrize("mixed", [True, False])
def test_laws(kind: str, clients: int, groups: tuple[str, ...], edges: tuple[float, ...], mixed: bool) -> None:
    timeline = make(kind, clients=clients, groups=groups, edges=edges, mixed=mixed)
    assert set(timeline.duplicates().values()) == {0}
    assert timeline.shared_units(TABLE.attributes["unit"]) == 0
    assert used(timeline) == TABLE.num_samples
    assert timeline.num_clients == clients
    units = TABLE.attributes["unit"]
    trained = np.unique(units[np.concatenate([rows for c in timeline.train for rows in c])])
    for part in ("validation", "test"):
        tested = [rows for c in getattr(timeline, part) for rows in c]
        assert not np.isin(units[np.concatenate(tested)], trained).any()
    assert not np.isin(units[timeline.holdout], trained).any()


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_timeline_and_another_seed_another(kind: str) -> None:
    options = {"shares": ((0.9, 0.1), (0.1, 0.9)), "tasks": 2} if kind == "group_ratios" else {}
    first, again, other = (make(kind, seed=s, **options) for s in (1, 1, 2))
    for a, b in zip(first.train, again.train, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert any(not np.array_equal(a[0], b[0]) for a, b in zip(first.train, other.train, strict=True))


def test_equal_clients_differ_by_at_most_one_sample_whatever_their_number() -> None:
    """B6 of the original: only powers of two came out equal."""
    for clients in (3, 5, 7, 10):
        found = sizes(make("naive", clients=clients, mixed=False, unit=""))
        assert max(found) - min(found) <= 1


def test_kinds_have_the_demographics_they_promise() -> None:
    kinds = ("balanced", "left_skewed", "right_skewed", "only:1", "missing:0", "spare")
    table = make_table(young=0.5)
    timeline = make("naive", table, clients=6, kinds=kinds, leftovers="unused")
    shares = {}
    for kind, tasks in zip(timeline.kinds, timeline.train, strict=True):
        groups = timeline.group[np.concatenate(tasks)]
        shares[kind] = (groups == 0).mean()
    assert shares["left_skewed"] > 0.7
    assert shares["right_skewed"] < 0.3
    assert abs(shares["balanced"] - 0.5) < 0.1
    assert shares["only:1"] == shares["missing:0"] == 0


def test_equal_groups_work() -> None:
    """B3 of the original: a crash where both groups have the same size."""
    table = make_table(patients=200)
    ages = np.where(np.arange(table.num_samples) % 2 == 0, 30.0, 70.0).astype(np.float32)
    equal = SampleTable(table.labels, table.environment, np.zeros_like(table.split), {"age": ages}, table.class_names)
    timeline = make("localized", equal, clients=4, validation_fraction=0.0)
    assert used(timeline) == equal.num_samples
    assert set(timeline.duplicates().values()) == {0}


def test_clients_with_one_group_get_plain_cuts() -> None:
    timeline = make("localized", clients=4, kinds=("only:0", "only:1", "balanced", "spare"))
    only = timeline.train[0]
    assert max(map(len, only)) - min(map(len, only)) <= 1
    assert (timeline.group[np.concatenate(only)] == 0).all()


def test_localized_tasks_are_equal_in_size_and_drift() -> None:
    timeline = make("localized", clients=5)
    for tasks in timeline.train:
        assert max(map(len, tasks)) - min(map(len, tasks)) <= 1
    shares = np.array([[(timeline.group[rows] == 0).mean() for rows in tasks] for tasks in timeline.train])
    assert np.ptp(shares, axis=1).max() > 0.15


def test_test_tasks_have_the_mix_of_their_training_tasks() -> None:
    timeline = make("localized", clients=3, tasks=2, holdout_fraction=0.0)
    for trained, tested in zip(timeline.train, timeline.test, strict=True):
        for rows, other in zip(trained, tested, strict=True):
            assert abs((timeline.group[rows] == 0).mean() - (timeline.group[other] == 0).mean()) < 0.12


def test_group_ratios_are_exact_up_to_rounding() -> None:
    shares = ((1.0, 0.0), (0.5, 0.5), (0.0, 1.0))
    timeline = make("group_ratios", clients=4, tasks=3, shares=shares)
    for tasks in timeline.train:
        for rows, (first, _) in zip(tasks, shares, strict=True):
            assert abs((timeline.group[rows] == 0).mean() - first) <= 1 / len(rows)
    assert "train: asked for by no task" in timeline.unused


def test_incremental_tasks_hold_one_class_or_bracket() -> None:
    for tasks in make("class_incremental", clients=3).train:
        assert [set(TABLE.labels[rows]) for rows in tasks] == [{0}, {1}, {2}]
    timeline = make("group_incremental", clients=3)
    brackets = np.searchsorted([20, 40, 60, 80], TABLE.attributes["age"], side="right")
    assert timeline.num_tasks == 5
    for tasks in timeline.train:
        for number, rows in enumerate(tasks):
            assert set(brackets[rows]) <= {number}


@pytest.mark.parametrize("local_tests", ["split", "shared"])
@pytest.mark.parametrize("kind", [k for k in KINDS if k != "group_ratios"])
def test_every_client_in_one_environment_and_no_environment_without(kind: str, local_tests: str) -> None:
    """For training, validation and tests, though `y` has a split of its own only for training and tests."""
    split = np.where((TABLE.environment == 1) & (TABLE.split == 1), 0, TABLE.split).astype(np.uint8)
    table = SampleTable(TABLE.labels, TABLE.environment, split, TABLE.attributes, TABLE.class_names, ("x", "y"))
    timeline = make(kind, table, clients=5, by_environment=True, unit="", local_tests=local_tests, min_task_size=0)
    homes = []
    for client in range(5):
        places = [set(table.environment[np.concatenate(getattr(timeline, part)[client])].tolist()) for part in PARTS]
        assert len(places[0]) == 1
        assert places == places[:1] * 3
        homes += places[0]
    assert set(homes) == {0, 1}
    if local_tests == "split" and kind != "repeated":
        assert set(timeline.duplicates().values()) == {0}
        assert used(timeline) == table.num_samples


def test_an_environment_without_a_split_gets_one_and_a_unit_stays_in_one_part() -> None:
    units = TABLE.attributes["unit"]
    for apart, split, told in (
        (units % 2, np.where(units % 2, 255, TABLE.split), "no split of y: 0.2"),
        (TABLE.environment, np.full(TABLE.num_samples, 255), "no split: 0.2"),  # units with samples in both
    ):
        table = SampleTable(TABLE.labels, apart, split.astype(np.uint8), TABLE.attributes, ("a", "b", "c"), ("x", "y"))
        timeline = make("naive", table, clients=4, by_environment=True)
        assert timeline.notes[-1] == f"the dataset stores {told} of the units are for tests"
        assert set(apart[timeline.holdout].tolist()) == {0, 1}
        assert used(timeline) == table.num_samples


def test_samples_without_a_group_are_left_out_with_a_count_or_form_one() -> None:
    ages = TABLE.attributes["age"].copy()
    ages[::10] = np.nan
    gaps = SampleTable(
        TABLE.labels, TABLE.environment, TABLE.split, {**TABLE.attributes, "age": ages}, TABLE.class_names, ("x", "y")
    )
    timeline = make("naive", gaps, clients=3)
    assert timeline.unused["train: in no demographic group"] == np.isnan(ages[gaps.split == 0]).sum()
    assert used(timeline) == gaps.num_samples
    kept = make("naive", gaps, clients=3, missing="group")
    assert kept.group_names[-1] == "not known"
    assert not kept.unused


def test_holdout_of_all_tests_says_so() -> None:
    timeline = make("naive", clients=3, holdout="test")
    assert timeline.duplicates()["test in hold-out"] > 0
    assert any("hold-out holds" in note for note in timeline.notes)


def test_shared_tests_overlap_between_clients_only() -> None:
    timeline = make("localized", clients=5, local_tests="shared")
    assert timeline.duplicates()["test"] > 0
    assert all(len(np.unique(rows)) == len(rows) for tasks in timeline.test for rows in tasks)
    assert timeline.duplicates()["train"] == timeline.duplicates()["train in another part"] == 0


def test_a_dataset_without_a_split_is_divided_by_patients() -> None:
    table = make_table(split=False)
    timeline = make("localized", table, clients=3)
    units = table.attributes["unit"]
    trained = np.unique(units[np.concatenate([r for c in timeline.train for r in c])])
    assert not np.isin(units[timeline.holdout], trained).any()
    assert any("no split" in note for note in timeline.notes)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"clients": 500}, r"client \d+ \(.*\) has \d+ training samples for 4 tasks"),
        ({"clients": 5, "min_client_size": 400}, "client 0 .* has .* training samples.*min_client_size is 400"),
        ({"clients": 10, "min_task_size": 60}, "task 1 has .* train samples.*min_task_size is 60"),
        ({"groups": ("agee",)}, "no attribute 'agee'.*did you mean 'age'"),
        ({"edges": (200,)}, "two groups"),
        ({"unit": "patient"}, "scenario.unit: 'patient' is no attribute of the dataset; its categories are sex, unit"),
        ({"unit": "age"}, "scenario.unit: 'age' is a number, no category"),
        ({"clients": 3, "kinds": ("balanced", "only:7", "spare")}, "names group 7, groups are 0 to 1"),
    ],
)
def test_what_is_not_possible_is_refused_with_the_numbers(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make("localized", **options)


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        ("localized", {"balanced": 0.7, "spare": 0.5}, "more than 1"),
        ("localized", {"clients": 2, "kinds": ("balanced",)}, "names 1 clients, clients is 2"),
        ("localized", {"kinds": ("balanced",) * 9 + ("left",)}, "'left' is no kind"),
        ("novel_disease", {"rapid": 9, "clients": 5}, "rapid is 9"),
        ("novel_disease", {"clients": 2, "rapid": 1, "speeds": ("rapid", "fast")}, "rapid or slow"),
        ("group_ratios", {"tasks": 4}, "shares has 5 rows, tasks is 4"),
        ("group_ratios", {"tasks": 1, "shares": ((0.5, 0.6),)}, "sum to 1"),
    ],
)
def test_wrong_numbers_are_refused_at_once(kind: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        registry.load(SCENARIOS, kind).SCENARIO(**options)


def test_clients_are_shared_among_datasets_by_largest_remainders() -> None:
    """B7 of the original: a dataset got no client, or the total was not what was asked for."""
    assert largest_remainder([100, 100, 100], 5) == [2, 2, 1]
    assert largest_remainder([1000, 3, 3], 4) == [2, 1, 1]
    rng = np.random.default_rng(2)
    for _ in range(200):
        there = rng.integers(1, 2000, int(rng.integers(1, 7))).tolist()
        seats = len(there) + int(rng.integers(0, 60))
        found = largest_remainder(there, seats)
        quotas = [seats * n / sum(there) for n in there]
        assert sum(found) == seats
        assert min(found) >= 1
        if min(quotas) >= 1:
            assert all(abs(n - quota) < 1 for n, quota in zip(found, quotas, strict=True))
    with pytest.raises(ConfigError, match=r"scenario\.clients is 2, and there are 3 environments.*at least 3"):
        largest_remainder([5, 5, 5], 2)


def test_demand_never_exceeds_what_is_there_and_uses_it_all() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        groups = int(rng.integers(2, 5))
        kinds = rng.choice(["balanced", "left_skewed", "right_skewed", "spare", "skewed:0"], int(rng.integers(2, 12)))
        there = rng.integers(1, 300, groups)
        for reserve in (True, False):
            wanted = demand(list(kinds), there, deal=True, reserve=reserve)
            assert (wanted >= -1e-9).all()
            np.testing.assert_allclose(wanted.sum(0), there, rtol=1e-9)


def test_a_timeline_travels_as_arrays() -> None:
    timeline = make("class_incremental", clients=4)
    again = Timeline.from_arrays(timeline.to_arrays(), timeline.kinds, timeline.group_names)
    for part in PARTS:
        for a, b in zip(getattr(timeline, part), getattr(again, part), strict=True):
            assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert np.array_equal(timeline.holdout, again.holdout)
    assert timeline.partition(0).check().num_clients == 4


def test_categories_are_called_by_their_names() -> None:
    timeline = make("naive", clients=3, groups=("sex", "age")).named({"sex": ("M", "F"), "unit": ()})
    assert sorted(timeline.group_names) == ["sex F, 0-59", "sex F, 60+", "sex M, 0-59", "sex M, 60+"]
