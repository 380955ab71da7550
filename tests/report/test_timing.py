from __future__ import annotations

import math
import statistics

import pytest

from fedhpc.errors import FedhpcError
from fedhpc.report.timing import (
    log_interval,
    median,
    olympic_mean,
    order_coverage,
    order_interval,
    paired_ratio,
    percentile_interval,
    resamples,
    student_quantile,
    summarize_times,
)


@pytest.mark.parametrize(
    ("degrees", "level", "quantile"),
    [(1, 0.95, 12.7062047364), (2, 0.95, 4.30265272991), (4, 0.95, 2.77644510520), (9, 0.99, 3.24983554159),
     (30, 0.9, 1.69726088659), (1000, 0.95, 1.96233908082)],
)  # fmt: skip
def test_students_quantile_is_the_tables(degrees, level, quantile):
    assert student_quantile(degrees, level) == pytest.approx(quantile, rel=1e-10)


@pytest.mark.parametrize(("degrees", "level"), [(0, 0.95), (3, 0.0), (3, 1.0)])
def test_a_quantile_that_does_not_exist_is_refused(degrees, level):
    with pytest.raises(FedhpcError, match="degrees"):
        student_quantile(degrees, level)


def test_the_log_interval_scales_with_the_unit_and_narrows_with_more_runs():
    seconds = log_interval([10.0, 12.0, 11.0])
    minutes = log_interval([10 / 60, 12 / 60, 11 / 60])
    assert seconds.ci is not None
    assert minutes.ci == pytest.approx([end / 60 for end in seconds.ci])
    low, high = log_interval([10.0, 12.0, 11.0] * 3).ci or (0, 0)
    assert seconds.ci[0] < low < seconds.geometric_mean < high < seconds.ci[1]


def test_one_run_has_a_time_but_no_interval():
    found = log_interval([7.3])
    assert (found.geometric_mean, found.ci, found.t_quantile) == (7.3, None, None)


@pytest.mark.parametrize("seconds", [[], [1.0, 0.0], [1.0, -1.0], [1.0, math.inf], [1.0, math.nan]])
def test_a_geometric_mean_of_no_times_is_refused(seconds):
    with pytest.raises(FedhpcError):
        log_interval(seconds)


def test_a_paired_ratio_ignores_what_the_pairs_have_in_common():
    machine_speeds = [1.0, 5.0, 0.3, 2.0]
    ratio = paired_ratio([1.2 * m for m in machine_speeds], machine_speeds)
    assert ratio is not None
    assert ratio.geometric_mean == pytest.approx(1.2)
    assert ratio.ci == pytest.approx((1.2, 1.2))


def test_a_censored_pair_leaves_no_ratio():
    assert paired_ratio([1.0, None], [1.0, 1.0]) is None
    assert paired_ratio([1.0, 2.0], [0.0, 1.0]) is None
    with pytest.raises(FedhpcError, match="2 and 1"):
        paired_ratio([1.0, 2.0], [1.0])


def test_censored_runs_stand_behind_all_others_and_are_never_averaged():
    found = order_interval([30.0, None, 10.0, 20.0, 40.0])
    assert (found.n, found.k, found.ci, found.median) == (5, 1, (10.0, None), 30.0)
    assert found.coverage == 0.9375


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [([1.0, 2.0, None], 2.0), ([1.0, None, None], None), ([1.0, None], None), ([3.0, 1.0], 2.0), ([None], None),
     ([1.0, 2.0, 4.0, None], 3.0), ([1.0, 2.0, None, None], None)],
)  # fmt: skip
def test_the_median_exists_while_less_than_half_are_censored(seconds, expected):
    assert median(seconds) == expected


@pytest.mark.parametrize("seconds", [[], [-1.0], [math.nan, 1.0]])
def test_a_median_of_no_times_is_refused(seconds):
    with pytest.raises(FedhpcError):
        median(seconds)


def test_the_order_interval_is_the_narrowest_that_covers():
    for n in range(6, 40):
        k = order_interval([float(i) for i in range(n)]).k
        assert order_coverage(n, k) >= 0.95
        assert k == n // 2 or order_coverage(n, k + 1) < 0.95
    with pytest.raises(FedhpcError, match="3 values"):
        order_coverage(3, 3)


def test_the_olympic_mean_drops_the_fastest_and_the_slowest():
    assert olympic_mean([1.0, 100.0, 2.0, 4.0]) == 3.0
    with pytest.raises(FedhpcError, match="three"):
        olympic_mean([1.0, 2.0])


def test_a_summary_counts_the_censored_runs():
    found = summarize_times([1.0, None, 2.0])
    assert (found.total, found.reached, found.log, found.order.median) == (3, 2, None, 2.0)
    assert summarize_times([1.0, 2.0]).log is not None
    assert summarize_times([0.0, 2.0]).log is None


def test_resamples_are_the_same_every_time_and_cover_all_positions():
    first = list(resamples(4, 500))
    assert first == list(resamples(4, 500))
    assert first != list(resamples(4, 500, seed=1))
    assert {i for sample in first for i in sample} == {0, 1, 2, 3}
    assert all(len(sample) == 4 and list(sample) == sorted(sample) for sample in first)


def test_the_percentile_interval_is_that_of_the_quantiles():
    values = [float((7 * i) % 101) for i in range(101)]
    cuts = statistics.quantiles(values, n=40, method="inclusive")
    assert percentile_interval(values) == pytest.approx((cuts[0], cuts[-1]))
    assert percentile_interval([1.0]) == (1.0, 1.0)
    assert percentile_interval([]) is None
    assert percentile_interval([1.0, None]) is None
