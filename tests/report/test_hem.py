"""HEM of single runs: raw quantities, indices, bands."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from fedhpc.errors import ConfigError
from fedhpc.report._hem_index import band
from fedhpc.report._hem_measures import gini, jain, measure, personalization
from fedhpc.report.hem import Band, Curve, HemOptions, Importances, IndexTable, judge
from tests.report.curves import compare, components, curve

MINMAX = HemOptions(computation="minmax")


def test_nobody_reaches_the_target():
    found = judge(compare(curve("A", 0.1, 0.2, 0.3, 0.4), curve("B", 0.2, 0.3, 0.4, 0.5)))
    assert [found.components[n][c] for n in "AB" for c in ("convergence", "computation")] == [0.0] * 4
    assert found.flags == {"A": ("target_not_reached",), "B": ("target_not_reached",)}
    assert all(v is not None for row in found.hem.values() for v in row.values())


def test_a_run_that_ends_early_without_the_target_is_censored_and_counts_to_the_cap():
    found = judge(compare(curve("A", 0.1, 0.2), curve("B", 0.1, 0.9, 0.9, 0.9)))
    assert found.flags["A"] == ("target_not_reached", "censored")
    assert found.components["A"]["convergence"] == 0.0
    assert found.times["A"].order.median is None
    assert found.figures["A"].tta == {"train": None, "all": None}


def test_a_run_that_ends_at_its_target_is_said_to():
    found = judge(compare(curve("A", 0.1, 0.9), curve("B", 0.1, 0.9, 0.9, 0.9)))
    assert found.flags["A"] == ()
    assert "ended at the target, before round 4: A" in found.warnings[0]


def test_all_at_the_target_before_training():
    both = [curve(name, 0.9, 0.9, rounds=(0, 1)) for name in "AB"]
    assert components(compare(*both), "computation") == {"A": 1.0, "B": 1.0}
    assert components(compare(*both), "convergence") == {"A": 1.0, "B": 1.0}
    assert components(compare(*both), "computation", MINMAX) == {"A": 1.0, "B": 1.0}


def test_the_full_time_of_a_run_without_the_target_only_lengthens_the_longest():
    slow = curve("slow", 0.1, 0.1, 0.1, 0.1, seconds=10.0)
    quick = curve("quick", 0.1, 0.1, 0.1, 0.1, seconds=0.1)
    reached = [curve("A", 0.1, 0.9, 0.9, 0.9), curve("B", 0.1, 0.1, 0.1, 0.9)]
    assert components(compare(*reached, slow), "computation") == {"A": 1 - 2 / 40, "B": 1 - 4 / 40, "slow": 0.0}
    assert components(compare(*reached, quick), "computation") == {"A": 0.5, "B": 0.0, "quick": 0.0}
    assert components(compare(*reached, slow), "computation", MINMAX) == {"A": 1.0, "B": 36 / 38, "slow": 0.0}
    assert components(compare(*reached, quick), "computation", MINMAX) == {"A": 1.0, "B": 0.0, "quick": 0.0}


def test_a_fixed_reference_is_absolute():
    alone = compare(curve("A", 0.1, 0.9, 0.9, 0.9))
    fixed = HemOptions(computation="fixed_reference", reference_seconds=8.0)
    assert components(alone, "computation", fixed) == {"A": 0.75}
    assert components(alone, "computation", replace(fixed, reference_seconds=1.0)) == {"A": 0.0}
    assert judge(alone, fixed).hem["iot"]["A"] is None  # fairness is still comparative
    without = Importances({"mine": {"accuracy": 1, "convergence": 1, "computation": 2, "fairness": 0}})
    found = judge(alone, replace(fixed, importances=without))
    assert found.hem["mine"]["A"] == pytest.approx((0.9 + 0.5 + 2 * 0.75) / 4)
    for wrong in (None, 0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ConfigError, match="positive number of seconds"):
            judge(alone, replace(fixed, reference_seconds=wrong))


def test_one_algorithm_left_after_a_missing_accuracy_has_nothing_to_compare_with():
    found = judge(compare(curve("A", 0.1, 0.9), curve("B", 0.9, None), cap=2))
    assert found.flags == {"A": ("comparative_index_undefined",), "B": ("nan_accuracy",)}
    assert found.hem["iot"] == {"A": None, "B": None}
    assert found.components["B"] == {"accuracy": None, "convergence": 0.5, "computation": None, "fairness": None}


def test_fairness_of_perfect_lists_is_one_for_all():
    perfect = [curve("A", 1.0), curve("B", 1.0)]
    for fairness in ("reciprocal", "linear"):
        options = HemOptions(fairness=fairness)
        assert components(compare(*perfect, cap=1), "fairness", options) == {"A": 1.0, "B": 1.0}


def test_the_last_round_counts_not_the_best_and_clients_weigh_the_same():
    sparse = Curve("A", None, (1, 2), ((0.9, 0.9), (0.5, 0.7)), (1.0, 1.0), (0.0, 0.0), test_samples=(10, 90))
    found = measure(sparse, 0.8, 2)
    assert found.client_accuracy == pytest.approx(0.6)
    assert found.weighted_accuracy == pytest.approx(0.68)
    assert found.final == (0.5, 0.7)


def test_evaluations_beyond_the_cap_are_not_seen():
    long = curve("A", 0.1, 0.2, 0.9, 0.95)
    found = measure(long, 0.8, 2)
    assert (found.client_accuracy, found.rounds_to_target, found.full_time["train"]) == (0.2, None, 2.0)
    assert not found.censored


def test_a_target_that_is_only_touched_is_told_from_one_that_is_kept():
    found = measure(curve("A", 0.1, 0.8, 0.7, 0.8, 0.9, 0.85, 0.9), 0.8, 7)
    assert (found.rounds_to_target, found.sustained) == (2, 4)
    assert measure(curve("A", 0.1, 0.8), 0.8, 2).sustained is None


def test_a_missing_evaluation_interval_is_reported():
    dense, sparse = curve("A", 0.1, 0.5, 0.8, 0.9), curve("B", 0.5, 0.9, rounds=(2, 4))
    found = judge(compare(dense, sparse))
    assert found.figures["B"].interval == 2
    assert "rounds between evaluations differ" in found.warnings[0]
    assert "A 1, B 2" in found.warnings[0]


def test_equality_figures():
    assert jain([0.5, 0.5]) == pytest.approx(1.0)
    assert jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert gini([0.5, 0.5]) == 0.0
    assert gini([0.0, 0.0, 0.0, 1.0]) == pytest.approx(0.75)
    assert gini([0.9, 0.1, 0.5]) == pytest.approx(sum(abs(a - b) for a in (0.9, 0.1, 0.5) for b in (0.9, 0.1, 0.5)) / 9)
    assert jain([0.0]) is gini([0.0]) is None


def test_the_papers_fairness_prefers_the_less_equal_list_and_std_does_not():
    equal = curve("equal", 0.84)
    unequal = curve("unequal", 0.84, spread=0.1)
    found = judge(compare(equal, unequal, cap=1))
    assert found.components["unequal"]["fairness"] == 1.0
    assert found.figures["unequal"].std == pytest.approx(0.1)
    assert found.figures["equal"].std == 0.0


@pytest.mark.parametrize(
    ("personal", "base", "percent", "excluded"),
    [
        ((0.6, 0.9), (0.5, 0.6), 35.0, 0),
        ((0.6, 0.9, 0.1), (0.5, 0.6, 0.0), 35.0, 1),
        ((0.6, 0.9), (0.0, 0.0), None, 2),
        ((0.6, None), (0.5, 0.6), None, 0),
        ((0.6, 0.9), (0.5, None), None, 0),
        ((0.6, None), (0.5, 0.0), None, 1),
    ],
)
def test_personalization_is_a_median_over_the_clients_that_have_a_base(personal, base, percent, excluded):
    found = personalization(personal, base)
    assert found.excluded == excluded
    assert found.percent == (None if percent is None else pytest.approx(percent))


def test_clients_must_be_the_same_for_personalization():
    other = Curve("A_MAML", "A", (1,), ((0.5, 0.5, 0.5),), (1.0,), (0.0,))
    with pytest.raises(ConfigError, match="A_MAML has 3 clients, A has 2"):
        judge(compare(curve("A", 0.5), other, cap=1))


def test_order_of_the_algorithms_changes_nothing():
    curves = [
        curve(name, 0.1, 0.5 + i / 20, 0.8 + i / 50, 0.85 + i / 50, seconds=i + 1) for i, name in enumerate("ABCD")
    ]
    expected = judge(compare(*curves)).hem
    random.Random(3).shuffle(curves)
    found = judge(compare(*curves)).hem
    assert {case: dict(sorted(row.items())) for case, row in found.items()} == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: compare(curve("A", 0.5), target=80), "80 % is 0.8"),
        (lambda: compare(curve("A", 0.5), target=0.0), "target"),
        (lambda: compare(curve("A", 0.5), cap=0), "at least 1"),
        (compare, "no algorithm"),
        (lambda: judge(compare(curve("A", 0.5), curve("A", 0.5))), "A: there are two runs with seed 0"),
        (lambda: Importances({"x": {"accuracy": 1}}), "'convergence' is unknown or missing"),
        (
            lambda: Importances({"x": dict.fromkeys(("accuracy", "convergence", "computation", "fairnes"), 1)}),
            "fairnes",
        ),
        (lambda: Importances().with_weight("iot", "accuracy", -1), "importance of accuracy must be a number >= 0"),
        (lambda: Importances().with_weight("phone", "accuracy", 1), "no use case 'phone'"),
        (
            lambda: Importances({"x": dict.fromkeys(("accuracy", "convergence", "computation", "fairness"), 0)}),
            "above 0",
        ),
        (lambda: Importances(bands=(Band("Low", 0.0), Band("Good", 0.7))), "from the best to the worst"),
        (lambda: Importances(bands=(Band("Good", 0.7),)), "the last one, 'Good', must begin at 0"),
        (lambda: Importances(bands=()), "bands"),
        (lambda: Importances(bands=(Band("Odd", math.nan), Band("Low", 0.0))), "bands"),
    ],
)
def test_what_cannot_be_judged_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_rounding_errors_do_not_move_a_value_over_a_border():
    assert [band(0.7 - 1e-15), band(0.8 + 1e-15), band(0.5 - 1e-11), band(None)] == ["Good", "Good", "Low", None]


def test_given_indices_with_a_gap_have_no_hem():
    table = {"accuracy": 0.5, "convergence": 0.5, "computation": None, "fairness": 1.0}
    found = judge(IndexTable({"A": table, "B": {**table, "computation": 0.0}}))
    assert found.hem["iot"] == {"A": None, "B": pytest.approx(0.5)}
    assert found.band["iot"]["A"] is None
    assert found.flags == {"A": ("missing_index",), "B": ()}
