"""Several seeds of one algorithm: summed up first, judged then, and drawn anew together."""

from __future__ import annotations

import pytest

from fedhpc.report.hem import Comparison, judge
from tests.report.curves import compare, curve


def study(slow: dict[int, float], quick: dict[int, float]) -> Comparison:
    runs = [
        curve(name, 0.1, 0.6, 0.8, 0.9, seconds=seconds, seed=seed, spread=0.02 * seed + more)
        for name, seeds, more in (("slow", slow, 0.0), ("quick", quick, 0.01))
        for seed, seconds in seeds.items()
    ]
    return compare(*runs)


def test_seeds_are_summed_up_and_resampled_together():
    found = judge(study({0: 2.0, 1: 16.0, 2: 2.0}, {0: 1.0, 1: 8.0, 2: 1.0}))
    assert found.seeds == (0, 1, 2)
    assert found.figures["slow"].tta["train"] == pytest.approx(3 * 4.0)  # the geometric mean
    assert found.components["quick"]["computation"] == pytest.approx(0.5)
    # Every seed is twice as slow, so the index is one half however seeds are drawn; drawn apart, it would spread.
    assert found.component_intervals["quick"]["computation"] == pytest.approx((0.5, 0.5))
    ratio = found.ratios["quick"]
    assert ratio is not None
    assert ratio.ci == pytest.approx((0.5, 0.5))
    assert found.times["slow"].log is not None
    low, high = found.hem_intervals["iot"]["quick"] or (1, 0)
    assert low <= (found.hem["iot"]["quick"] or 0) <= high


def test_rank_stability_counts_how_often_the_winner_wins():
    apart = judge(study({0: 2.0, 1: 2.0}, {0: 1.0, 1: 1.0})).stability["smartphone"]
    assert apart is not None
    assert (apart.winner, apart.share) == ("quick", pytest.approx(1.0))
    close = judge(study({0: 1.0, 1: 1.0, 2: 9.0}, {0: 3.0, 1: 3.0, 2: 1.0})).stability["smartphone"]
    assert close is not None
    assert 0 < close.share < 1
    assert sum(close.shares.values()) == pytest.approx(1.0)


def test_one_seed_has_no_intervals():
    found = judge(study({0: 2.0}, {0: 1.0}))
    assert (found.hem_intervals, found.stability) == ({}, {})


def test_only_seeds_that_all_have_are_compared():
    found = judge(study({0: 2.0, 1: 2.0, 2: 100.0}, {0: 1.0, 1: 1.0}))
    assert found.seeds == (0, 1)
    assert found.figures["slow"].total == 2
    assert "only seeds that every algorithm has are compared: 0, 1 (slow: 0, 1, 2; quick: 0, 1)" in found.warnings[0]


def test_without_a_common_seed_nothing_is_paired():
    found = judge(study({0: 2.0, 1: 2.0}, {2: 1.0, 3: 1.0}))
    assert "no seed in common" in found.warnings[0]
    assert (found.hem_intervals, found.ratios, found.reference) == ({}, {}, None)
    assert found.hem["iot"]["quick"] is not None


def test_a_censored_seed_is_counted_and_turns_means_into_medians():
    good = [curve("A", 0.1, 0.9, 0.9, 0.9, seconds=s, seed=seed) for seed, s in enumerate((1.0, 2.0, 9.0))]
    bad = [*(curve("B", 0.1, 0.9, 0.9, 0.9, seconds=3.0, seed=seed) for seed in (0, 1)), curve("B", 0.1, 0.2, seed=2)]
    found = judge(compare(*good, *bad))
    assert found.figures["A"].tta["train"] == 4.0
    assert found.figures["B"].tta["train"] == 6.0
    assert (found.figures["B"].reached, found.figures["B"].total, found.figures["B"].censored) == (2, 3, 1)
    assert found.flags["B"] == ("partly_reached", "censored")
    assert found.components["B"]["convergence"] == pytest.approx(2 / 3 * 0.5)
    assert found.times["B"].log is None
    assert found.ratios["B"] is None


def test_with_half_of_the_seeds_censored_there_is_no_time():
    runs = [curve("B", 0.1, 0.9, 0.9, 0.9, seed=0), curve("B", 0.1, 0.2, 0.3, 0.4, seed=1)]
    found = judge(compare(*runs, *(curve("A", 0.1, 0.9, 0.9, 0.9, seed=seed) for seed in (0, 1))))
    assert found.figures["B"].tta["train"] is None
    assert found.components["B"]["computation"] == 0.0


def test_a_missing_accuracy_in_one_seed_is_missing_in_all():
    runs = [curve("B", 0.9, 0.9, seed=0), curve("B", 0.9, None, seed=1)]
    others = [curve(name, 0.1, 0.9, seed=seed) for name in "AC" for seed in (0, 1)]
    found = judge(compare(*runs, *others, cap=2))
    assert found.components["B"]["accuracy"] is None
    assert found.hem_intervals["iot"]["B"] is None
    assert found.hem_intervals["iot"]["A"] is not None


def test_personalization_is_paired_by_seed():
    runs = [curve("A", 0.5, seed=0), curve("A", 0.4, seed=1)]
    runs += [curve("A_MAML", 0.6, seed=0, base="A"), curve("A_MAML", 0.6, seed=1, base="A")]
    gain = judge(compare(*runs, cap=1)).personalization
    assert gain["A_MAML"].percent == pytest.approx((20 + 50) / 2)
    assert list(gain) == ["A_MAML"]
