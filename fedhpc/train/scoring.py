"""Counting right answers."""

from __future__ import annotations

from torch import Tensor


def hits(scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> tuple[float, float]:
    """Return (weight of the rows whose largest score is the label, weight of all rows).

    The first of equal scores counts. A single score per row says class 1 where it is positive.

    Args:
        scores: [n, classes].
        labels: [n].
        weights: [n]; None counts every row once.
    """
    found = (scores[:, 0] > 0).to(labels.dtype) if scores.shape[1] == 1 else scores.argmax(1)
    right = (found == labels).float()
    if weights is None:
        return float(right.sum()), float(len(labels))
    return float((right * weights).sum()), float(weights.sum())
