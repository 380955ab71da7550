"""How sure a time to accuracy is: log-scale and order-statistic intervals, censored runs, paired ratios, bootstrap.

Times to accuracy are right-skewed, so means and intervals are formed on the log scale. A run that did not reach its
target is right-censored: it is counted, it takes its place behind all others in the order, and it is never averaged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from fedhpc.errors import FedhpcError
from fedhpc.seeding import generator

LEVEL = 0.95
"""Probability of every interval unless another is asked for."""


@dataclass(frozen=True)
class LogInterval:
    """A geometric mean with Student's interval on the log scale.

    Attributes:
        n: number of values.
        geometric_mean: in the values' unit.
        ci: lower and upper end; None with a single value.
        t_quantile: Student's quantile that was used; None with a single value.
    """

    n: int
    geometric_mean: float
    ci: tuple[float, float] | None = None
    t_quantile: float | None = None


@dataclass(frozen=True)
class OrderInterval:
    """A median with the interval between the k-th smallest and the k-th largest value.

    Attributes:
        n: number of values, censored ones included.
        k: which values bound it.
        ci: lower and upper end; an end is None where it is a censored value: it lies beyond all that was seen.
        coverage: probability that the interval holds the true median, whatever the distribution.
        median: None where half of the values or more are censored.
    """

    n: int
    k: int
    ci: tuple[float | None, float | None]
    coverage: float
    median: float | None


@dataclass(frozen=True)
class TimeToAccuracy:
    """Times to accuracy of one algorithm over several runs.

    Attributes:
        total: number of runs.
        reached: how many reached the target.
        log: on the log scale; None if a run is censored or took no time at all.
        order: by order statistics.
    """

    total: int
    reached: int
    log: LogInterval | None
    order: OrderInterval

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "total": self.total,
            "reached": self.reached,
            "log": vars(self.log) if self.log else None,
            "order": vars(self.order),
        }


def summarize_times(seconds: Sequence[float | None], level: float = LEVEL) -> TimeToAccuracy:
    """Summarize times to accuracy; None is a run that did not reach the target.

    Raises:
        FedhpcError: no value, or one that is no time.
    """
    known = [s for s in seconds if s is not None]
    complete = len(known) == len(seconds) and all(s > 0 for s in known)
    log = log_interval(known, level) if complete else None
    return TimeToAccuracy(len(seconds), len(known), log, order_interval(seconds, level))


def log_interval(seconds: Sequence[float], level: float = LEVEL) -> LogInterval:
    """Return exp(mean ± t·s/√n) of the logarithms.

    Raises:
        FedhpcError: no value, or one that is not a positive number.
    """
    if not seconds:
        raise FedhpcError("a mean time needs at least one run that reached its target")
    if not all(math.isfinite(s) and s > 0 for s in seconds):
        raise FedhpcError(f"a geometric mean needs positive times, got {min(seconds)}")
    if len(seconds) == 1:
        return LogInterval(1, seconds[0])
    logs = [math.log(s) for s in seconds]
    middle, quantile = fmean(logs), student_quantile(len(logs) - 1, level)
    half = quantile * stdev(logs) / math.sqrt(len(logs))
    return LogInterval(len(logs), math.exp(middle), (math.exp(middle - half), math.exp(middle + half)), quantile)


def paired_ratio(a: Sequence[float | None], b: Sequence[float | None], level: float = LEVEL) -> LogInterval | None:
    """Ratio a/b of times that belong together, such as of runs with one seed; None if a pair is censored or zero.

    Raises:
        FedhpcError: not the same number of times, or none.
    """
    if len(a) != len(b) or not a:
        raise FedhpcError(f"a paired comparison needs as many times on both sides, got {len(a)} and {len(b)}")
    ratios = [x / y for x, y in zip(a, b, strict=True) if x is not None and y is not None and x > 0 and y > 0]
    return log_interval(ratios, level) if len(ratios) == len(a) else None


def order_coverage(n: int, k: int) -> float:
    """Probability that the median lies between the k-th smallest and the k-th largest of n values.

    Raises:
        FedhpcError: there is no such interval.
    """
    if not 1 <= k <= (n + 1) // 2:
        raise FedhpcError(f"{n} values have no {k}-th smallest below a {k}-th largest")
    return 1.0 - 2 * sum(math.comb(n, i) for i in range(k)) / 2**n


def order_interval(seconds: Sequence[float | None], level: float = LEVEL) -> OrderInterval:
    """Return the narrowest interval between order statistics that covers `level`, or [min, max] if none does.

    Raises:
        FedhpcError: no value, or a negative one.
    """
    values = _ordered(seconds)
    n = len(values)
    fitting = [k for k in range(1, n // 2 + 1) if order_coverage(n, k) >= level]
    k = max(fitting, default=1)
    return OrderInterval(n, k, (_known(values[k - 1]), _known(values[n - k])), order_coverage(n, k), median(seconds))


def median(seconds: Sequence[float | None]) -> float | None:
    """Median with censored values (None) behind all others; None where half of them or more are censored.

    Raises:
        FedhpcError: no value, or a negative one.
    """
    values = _ordered(seconds)
    n = len(values)
    low, high = values[(n - 1) // 2], values[n // 2]
    return _known(low if low == high else (low + high) / 2)


def _ordered(seconds: Sequence[float | None]) -> list[float]:
    values = sorted(math.inf if s is None else s for s in seconds)
    if not values:
        raise FedhpcError("a median needs at least one run")
    if not all(v >= 0 for v in values):
        raise FedhpcError(f"times cannot be negative or NaN, got {min(values)}")
    return values


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def olympic_mean(seconds: Sequence[float]) -> float:
    """Mean without the fastest and the slowest run (MLPerf's score).

    Raises:
        FedhpcError: fewer than three runs.
    """
    if len(seconds) < 3:
        raise FedhpcError(f"a mean without the fastest and the slowest needs three runs, got {len(seconds)}")
    return fmean(sorted(seconds)[1:-1])


def student_quantile(degrees: int, level: float = LEVEL) -> float:
    """Return t with P(|T| ≤ t) = level for Student's T with a whole number of degrees of freedom.

    Raises:
        FedhpcError: no degrees of freedom, or a level outside (0, 1).
    """
    if degrees < 1 or not 0 < level < 1:
        raise FedhpcError(f"Student's quantile needs degrees >= 1 and a level in (0, 1), got {degrees} and {level}")
    low, high = 0.0, 1.0
    while _student_mass(high, degrees) < level:
        low, high = high, 2 * high
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if _student_mass(middle, degrees) < level else (low, middle)
    return high


def _student_mass(t: float, degrees: int) -> float:
    """P(|T| ≤ t): the finite sums of Abramowitz and Stegun 26.7.3 and 26.7.4."""
    angle = math.atan2(t, math.sqrt(degrees))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = degrees % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for i in range(1, degrees // 2 + 1):
        total += term
        term *= square * ((2 * i) / (2 * i + 1) if odd else (2 * i - 1) / (2 * i))
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def resamples(n: int, count: int, seed: int = 0) -> Iterator[tuple[int, ...]]:
    """Draw `count` bootstrap samples of the positions 0..n-1, each sorted: the same ones for the same arguments."""
    drawn = generator(seed, "report", "bootstrap", n).integers(0, n, size=(count, n))
    drawn.sort(axis=1)
    yield from (tuple(row) for row in drawn.tolist())


def percentile_interval(values: Sequence[float | None], level: float = LEVEL) -> tuple[float, float] | None:
    """Middle `level` of bootstrapped values, linear between order statistics; None if one is missing or none there."""
    known = sorted(v for v in values if v is not None)
    if not known or len(known) < len(values):
        return None
    return _quantile(known, (1 - level) / 2), _quantile(known, (1 + level) / 2)


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
