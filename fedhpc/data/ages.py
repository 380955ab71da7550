"""Age brackets: where ages are cut, by this package and by FedMedICL."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

BINARY_EDGES = {"fixed": (60.0,), "compat": (59.0,)}
BRACKET_EDGES = {"fixed": (20.0, 40.0, 60.0, 80.0), "compat": (19.0, 39.0, 59.0, 79.0)}
"""Lower ends of the age groups after the first; the original's edges lie one year below what its paper says."""
LOWEST_AGE = -1.0
"""Ages below are in no group (rule of the original; a source never stores them)."""


def brackets(ages: np.ndarray, edges: Sequence[float]) -> np.ndarray:
    """Bracket of each age, left ends included: int64, -1 where the age is missing or below -1."""
    codes = np.searchsorted(np.asarray(edges, dtype=np.float64), ages, side="right")
    return np.where(np.isnan(ages) | (ages < LOWEST_AGE), -1, codes)


def bracket_names(edges: Sequence[float]) -> tuple[str, ...]:
    """Names of the brackets: `0-59`, `60+`."""
    lows = [0.0, *edges]
    names = [f"{low:g}-{high - 1:g}" for low, high in itertools.pairwise(lows)]
    return (*names, f"{lows[-1]:g}+")


def bracket_counts(ages: Sequence[float | None]) -> list[str]:
    """How many ages are in each bracket, by both conventions: a line each; nothing without an age."""
    known = np.array([np.nan if age is None else age for age in ages], dtype=np.float64)
    if np.isnan(known).all():
        return []
    lines = []
    for mode, told in (("fixed", "ages"), ("compat", "ages, cut as the original does")):
        edges = BRACKET_EDGES[mode]
        counts = np.bincount(brackets(known, edges) + 1, minlength=len(edges) + 2)
        parts = [f"{name}: {count}" for name, count in zip(bracket_names(edges), counts[1:].tolist(), strict=True)]
        lines.append(f"{told}: {', '.join([*parts, f'not known: {counts[0]}'])}")
    return lines
