"""Scores for long-tailed recognition over demographic groups and temporal tasks.

LTR accuracy is the mean over classes of the accuracy within each class. In the mode `fixed` a class without samples is
left out and named; `compat_scores` follows the original (FedMedICL), where it counts as 0 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class Counts:
    """Hits and samples per class and group; counts of several batches, clients or ranks just add.

    Attributes:
        correct: int64 [C, G].
        total: int64 [C, G].
    """

    correct: np.ndarray
    total: np.ndarray

    @classmethod
    def of(
        cls, predictions: np.ndarray, labels: np.ndarray, groups: np.ndarray, num_classes: int, num_groups: int
    ) -> Counts:
        """Count predictions; samples without a group (-1) are in the last column, which `per_group` leaves out."""
        cell = labels * (num_groups + 1) + np.where(groups < 0, num_groups, groups)
        size = num_classes * (num_groups + 1)
        shape = (num_classes, num_groups + 1)
        hits = np.bincount(cell[predictions == labels], minlength=size).reshape(shape)
        return cls(hits, np.bincount(cell, minlength=size).reshape(shape))

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.correct + other.correct, self.total + other.total)

    @property
    def num(self) -> int:
        """Number of samples."""
        return int(self.total.sum())

    @property
    def accuracy(self) -> float:
        """Share of hits; NaN without samples."""
        return float(_ratio(self.correct.sum(), self.total.sum()))

    @property
    def per_class(self) -> np.ndarray:
        """Accuracy within each class: float64 [C], NaN where there is no sample."""
        return _ratio(self.correct.sum(1), self.total.sum(1))

    @property
    def per_group(self) -> np.ndarray:
        """Accuracy within each group: float64 [G], NaN where there is no sample."""
        return _ratio(self.correct.sum(0), self.total.sum(0))[:-1]

    @property
    def ltr(self) -> float:
        """Mean accuracy over the classes that are present; NaN if none is."""
        return mean_present(self.per_class)

    @property
    def ltr_per_group(self) -> np.ndarray:
        """LTR accuracy within each group: float64 [G]."""
        cells = _ratio(self.correct, self.total)
        return np.array([mean_present(cells[:, g]) for g in range(cells.shape[1] - 1)])

    @property
    def group_mean(self) -> float:
        """Mean accuracy over the groups that are present."""
        return mean_present(self.per_group)

    @property
    def gap(self) -> float:
        """Best minus worst accuracy over the groups that are present; NaN with fewer than two."""
        there = self.per_group[~np.isnan(self.per_group)]
        return float(there.max() - there.min()) if len(there) > 1 else math.nan

    @property
    def absent_classes(self) -> tuple[int, ...]:
        """Classes without a sample."""
        return tuple(np.flatnonzero(self.total.sum(1) == 0).tolist())


def mean_present(values: np.ndarray) -> float:
    """Mean of the values that are not NaN; NaN if all are."""
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else math.nan


def predicted(logits: np.ndarray) -> np.ndarray:
    """Class of the highest score (the first of equal ones), -1 where a score is not a number: int64 [N].

    To `argmax` a NaN is the highest, so that a diverged model would seem to predict the first class.
    """
    return np.where(np.isnan(logits).any(1), -1, logits.argmax(1))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Class probabilities float64 [N, C]."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    return np.asarray(shifted / shifted.sum(1, keepdims=True))


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> float:
    """Mean cross-entropy over the samples."""
    values = logits.astype(np.float64)
    top = values.max(1, keepdims=True)
    norm = top[:, 0] + np.log(np.exp(values - top).sum(1))
    return float((norm - values[np.arange(len(labels)), labels]).mean())


def auc(probabilities: np.ndarray, labels: np.ndarray) -> tuple[float, str]:
    """Area under the ROC curve, and why there is none.

    Two classes: of the score of class 1. More: mean over all pairs of present classes, each scored both ways (Hand and
    Till, 2001).

    Args:
        probabilities: [N, C].
        labels: int [N].

    Returns:
        The area and an empty text, or NaN and the reason.
    """
    present = np.unique(labels)
    if len(present) < 2:
        return math.nan, "one class only" if len(present) else "no samples"
    if np.isnan(probabilities).any():
        return math.nan, "scores that are not numbers"
    if probabilities.shape[1] == 2:
        return binary_auc(probabilities[:, 1], labels == 1), ""
    areas = []
    for a in present:
        for b in present[present != a]:
            pair = (labels == a) | (labels == b)
            areas.append(binary_auc(probabilities[pair, a], labels[pair] == a))
    return float(np.mean(areas)), ""


def per_class_auc(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Each class against all others: float64 [C], NaN where the class or its complement is absent."""
    found = np.full(probabilities.shape[1], math.nan)
    for label in range(probabilities.shape[1]):
        mine = labels == label
        if 0 < mine.sum() < len(mine):
            found[label] = binary_auc(probabilities[:, label], mine)
    return found


def binary_auc(scores: np.ndarray, positive: np.ndarray) -> float:
    """Probability that a positive sample scores above a negative one, ties half; NaN without both kinds of numbers.

    The same as scikit-learn's `roc_auc_score`, about ten times faster on the small tasks that fill a scores matrix.
    """
    num, others = int(positive.sum()), int((~positive).sum())
    if not num or not others or np.isnan(scores).any():
        return math.nan
    _, where, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    return float((ranks[where[positive]].sum() - num * (num + 1) / 2) / (num * others))


def imbalance_factor(counts: Sequence[int]) -> float:
    """Largest class over smallest, among the classes that are present; NaN if none is."""
    there = [n for n in counts if n > 0]
    return max(there) / min(there) if there else math.nan


def cumulative(matrix: np.ndarray) -> np.ndarray:
    """A_t: mean of all R[i][j] with j <= i <= t, for every task t; [T] of a matrix [trained task, evaluated task].

    A task without test samples (NaN) is left out; from a trained task on that was not examined at all, there is no A_t.
    """
    values = np.asarray(matrix, dtype=np.float64)
    there = np.tril(np.ones(values.shape, dtype=bool)) & ~np.isnan(values)
    sums, nums = np.cumsum(np.where(there, values, 0.0).sum(1)), np.cumsum(there.sum(1))
    known = np.logical_and.accumulate(~np.isnan(values).all(1)) & (nums > 0)
    return np.divide(sums, nums, out=np.full(len(values), math.nan), where=known)


def last_row(matrix: np.ndarray) -> float:
    """Mean over all tasks after the last one."""
    return mean_present(np.asarray(matrix, dtype=np.float64)[-1])


def forgetting(matrix: np.ndarray) -> float:
    """Mean over all but the last task of its best score so far minus its score at the end.

    NaN for a single task, and where the last task was not examined.
    """
    values = np.asarray(matrix, dtype=np.float64)
    lost = []
    for j in range(len(values) - 1):
        since = values[j:, j]
        lost.append(max(since[~np.isnan(since)], default=math.nan) - values[-1, j])
    return mean_present(np.array(lost)) if lost else math.nan


def backward_transfer(matrix: np.ndarray) -> float:
    """Mean over all but the last task of its score at the end minus right after it was learnt (Lopez-Paz, 2017)."""
    values = np.asarray(matrix, dtype=np.float64)
    gained = [values[-1, j] - values[j, j] for j in range(len(values) - 1)]
    return mean_present(np.array(gained)) if gained else math.nan


def novel_and_known(per_class: np.ndarray, novel: int) -> tuple[float, float]:
    """Mean accuracy over the known classes that are present, and the accuracy of the new one."""
    values = np.asarray(per_class, dtype=np.float64)
    return mean_present(np.delete(values, novel)), float(values[novel])


def confidence_interval(values: Sequence[float], level: float = _CONFIDENCE) -> tuple[float, float, float]:
    """Mean and the ends of its confidence interval over seeds (Student's t); the ends are NaN for fewer than two."""
    there = np.array([v for v in values if not math.isnan(v)], dtype=np.float64)
    mean = mean_present(there)
    if len(there) < 2:
        return mean, math.nan, math.nan
    from scipy.stats import t  # scikit-learn brings it

    half = float(t.ppf((1 + level) / 2, len(there) - 1) * there.std(ddof=1) / math.sqrt(len(there)))
    return mean, mean - half, mean + half


def cohens_d(a: Sequence[float], b: Sequence[float]) -> float:
    """Difference of the means over the pooled standard deviation (n - 1); 0 if neither varies and they are equal."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if len(x) + len(y) < 3 or not len(x) or not len(y):
        return math.nan
    spread = ((x - x.mean()) ** 2).sum() + ((y - y.mean()) ** 2).sum()
    difference = x.mean() - y.mean()
    pooled = math.sqrt(spread / (len(x) + len(y) - 2))
    return float(difference / pooled) if pooled else (0.0 if difference == 0 else math.copysign(math.inf, difference))


def hedges_g(a: Sequence[float], b: Sequence[float]) -> float:
    """Cohen's d, corrected for small samples."""
    return cohens_d(a, b) * (1 - 3 / (4 * (len(a) + len(b)) - 9))


def compat_scores(logits: np.ndarray, labels: np.ndarray, groups: np.ndarray, num_groups: int) -> dict[str, object]:
    """The original's figures: percent, rounded, absent classes and groups as 0, class 0 of two scored upside down."""
    num_classes = logits.shape[1]
    counts = Counts.of(logits.argmax(1), labels, groups, num_classes, num_groups)
    classes = [round(100 * v, 3) for v in np.nan_to_num(counts.per_class)]
    by_group = [round(100 * v, 3) for v in np.nan_to_num(counts.per_group)]
    probabilities = softmax(logits)
    areas = per_class_auc(probabilities, labels)
    if num_classes == 2:
        areas[0] = 1 - areas[1]
    return {
        "acc": round(100 * counts.accuracy, 3),
        "per_class": classes,
        "ltr": float(np.round(np.mean(classes), 3)),
        "per_group": by_group,
        "group_macro": float(np.round(np.mean(by_group), 3)),
        "loss": round(cross_entropy(logits, labels), 5),
        "auc": round(auc(probabilities, labels)[0], 3),
        "per_class_auc": areas.tolist(),
    }


def _ratio(hits: np.ndarray, total: np.ndarray) -> np.ndarray:
    hits, total = np.asarray(hits, dtype=np.float64), np.asarray(total)
    return np.divide(hits, total, out=np.full(hits.shape, math.nan), where=total > 0)
