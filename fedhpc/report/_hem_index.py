"""From raw quantities to indices in [0, 1], and from indices to HEM and its bands: formulas only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fedhpc.errors import ConfigError
from fedhpc.report.timing import LEVEL

COMPONENTS = ("accuracy", "convergence", "computation", "fairness")
LEVELS = {"high": 3.0, "moderate": 2.0, "low": 1.0}
USE_CASES: Mapping[str, Mapping[str, float]] = {
    "iot": {"accuracy": 3, "convergence": 1, "computation": 3, "fairness": 3},
    "smartphone": {"accuracy": 2, "convergence": 3, "computation": 3, "fairness": 2},
    "institution": {"accuracy": 3, "convergence": 1, "computation": 1, "fairness": 3},
}
"""Importances of the HEM paper's Table II."""
_EQUAL = 1e-12

Computation = Literal["zero_anchored", "minmax", "fixed_reference"]
Fairness = Literal["reciprocal", "linear"]
Indices = Mapping[str, float | None]
"""Component to index."""


@dataclass(frozen=True)
class Band:
    """A named range of HEM values from a lower border on.

    Attributes:
        name: what it is called.
        least: lower border.
        inclusive: whether the border belongs to it.
    """

    name: str
    least: float
    inclusive: bool = True

    def holds(self, value: float) -> bool:
        """Whether a value lies on or above the border."""
        return value >= self.least if self.inclusive else value > self.least


BANDS = (Band("Excellent", 0.8, inclusive=False), Band("Good", 0.7), Band("Acceptable", 0.5), Band("Low", 0.0))


@dataclass(frozen=True)
class Importances:
    """Which use cases are judged and how.

    Attributes:
        use_cases: name to component to weight; the weights need not add up to one.
        bands: from the best to the worst; the last one begins at 0.
    """

    use_cases: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: USE_CASES)
    bands: tuple[Band, ...] = BANDS

    def __post_init__(self) -> None:
        for name, weights in self.use_cases.items():
            _check_weights(name, weights)
        borders = [(b.least, not b.inclusive) for b in self.bands]
        finite = all(math.isfinite(least) for least, _ in borders)
        if not borders or not finite or borders != sorted(borders, reverse=True) or len(set(borders)) < len(borders):
            raise ConfigError("bands must be listed from the best to the worst, each with a lower border of its own")
        if not self.bands[-1].holds(0.0):
            raise ConfigError(
                f"bands: the last one, '{self.bands[-1].name}', must begin at 0 so that every HEM has a band"
            )

    def with_weight(self, use_case: str, component: str, weight: float) -> Importances:
        """The same with one weight changed.

        Raises:
            ConfigError: there is no such use case.
        """
        if use_case not in self.use_cases:
            raise ConfigError(f"there is no use case '{use_case}'; there are: {', '.join(self.use_cases)}")
        changed = {**self.use_cases[use_case], component: weight}
        return Importances({**self.use_cases, use_case: changed}, self.bands)


def _check_weights(name: str, weights: Mapping[str, float]) -> None:
    wrong = [c for c in weights if c not in COMPONENTS] + [c for c in COMPONENTS if c not in weights]
    if wrong:
        raise ConfigError(f"use case '{name}': '{wrong[0]}' is unknown or missing; it needs {', '.join(COMPONENTS)}")
    for component, weight in weights.items():
        if not (math.isfinite(weight) and weight >= 0):
            raise ConfigError(f"use case '{name}': importance of {component} must be a number >= 0, got {weight}")
    if sum(weights.values()) <= 0:
        raise ConfigError(f"use case '{name}': at least one importance must be above 0")


@dataclass(frozen=True)
class HemOptions:
    """The definition's switches, and how sure one wants to be.

    Attributes:
        computation: how computation efficiency is indexed.
        reference_seconds: for `fixed_reference`.
        clock: `train` counts rounds only, `all` evaluations too.
        fairness: how the paper's entropy is indexed.
        importances: use cases and bands.
        resamples: bootstrap samples of the seeds.
        level: probability of all intervals.
    """

    computation: Computation = "zero_anchored"
    reference_seconds: float | None = None
    clock: Literal["train", "all"] = "train"
    fairness: Fairness = "reciprocal"
    importances: Importances = field(default_factory=Importances)
    resamples: int = 2000
    level: float = LEVEL


def computation_indices(
    tta: Sequence[float | None], full_time: Sequence[float], kind: Computation, reference: float | None = None
) -> list[float | None]:
    """Index of computation efficiency per algorithm.

    Args:
        tta: time to accuracy; None if the target was not reached, which gives 0.
        full_time: time of the whole run; that of an algorithm which did not reach the target stands for its time in the
            longest time that the others are measured against, nowhere else.
        kind: `zero_anchored` 1 - t/t_max; `minmax` (t_max - t)/(t_max - t_min) with t_min over those that reached the
            target; `fixed_reference` 1 - t/reference, at least 0.
        reference: seconds, for `fixed_reference`.

    Returns:
        Indices; None for all of a single algorithm unless the reference is fixed.
    """
    if kind == "fixed_reference":
        if reference is None or not (math.isfinite(reference) and reference > 0):
            raise ConfigError(f"a fixed reference must be a positive number of seconds, got {reference}")
        return [0.0 if t is None else max(0.0, 1.0 - t / reference) for t in tta]
    if len(tta) < 2:
        return [None] * len(tta)
    longest = max(f if t is None else t for t, f in zip(tta, full_time, strict=True))
    if kind == "zero_anchored":
        return [0.0 if t is None else 1.0 if longest == 0 else 1.0 - t / longest for t in tta]
    shortest = min((t for t in tta if t is not None), default=longest)
    spread = longest - shortest
    equal = spread <= _EQUAL * longest
    return [0.0 if t is None else 1.0 if equal else (longest - t) / spread for t in tta]


def fairness_indices(entropies: Sequence[float], kind: Fairness) -> list[float | None]:
    """Index of the paper's fairness: 1 for the lowest entropy, 0 for the highest; None for a single algorithm."""
    if len(entropies) < 2:
        return [None] * len(entropies)
    low, high = min(entropies), max(entropies)
    if high <= _EQUAL or high - low <= _EQUAL * high:
        return [1.0] * len(entropies)
    if kind == "linear":
        return [(high - h) / (high - low) for h in entropies]
    if low <= _EQUAL:  # the limit of 1/H
        return [1.0 if h <= _EQUAL else 0.0 for h in entropies]
    return [(1 / h - 1 / high) / (1 / low - 1 / high) for h in entropies]


def hem(indices: Indices, weights: Mapping[str, float]) -> float | None:
    """Weighted mean of the indices; None if one with a weight is not defined."""
    terms = [(weight, indices[component]) for component, weight in weights.items() if weight > 0]
    values = [weight * index for weight, index in terms if index is not None]
    return math.fsum(values) / math.fsum(w for w, _ in terms) if len(values) == len(terms) else None


def band(value: float | None, bands: Sequence[Band] = BANDS) -> str | None:
    """Name of the band of a HEM value, which is rounded to 12 decimals first."""
    if value is None:
        return None
    rounded = round(value, 12)
    return next(b.name for b in bands if b.holds(rounded))
