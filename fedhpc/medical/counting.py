"""How many samples each temporal task gets, by the original's counting rules (mode `compat`).

Only counts: which samples are taken is a matter of the random stream. The rules and their oddities are those of
FedMedICL (Alhamoud et al., 2024); the repaired rules of mode `fixed` are in `fedhpc.medical.scenarios`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

NOVEL_SHARES = {
    "slow": ((0.0, 0.0, 0.06, 0.35), (0.30, 0.30, 0.25, 0.15)),
    "rapid": ((0.0, 0.08, 0.27, 0.65), (0.54, 0.30, 0.15, 0.01)),
}
"""Speed -> shares of the new disease and of every other class, per task; the original knows four tasks only."""


def normalised_weights(rng: np.random.Generator, num_tasks: int) -> np.ndarray:
    """Absolute values of standard normals, divided by their sum: float64 [T]."""
    weights = np.abs(rng.standard_normal(num_tasks))
    return weights / weights.sum()


def localized_counts(sizes: Sequence[int], percentages: Sequence[float]) -> np.ndarray:
    """Samples of two groups in each task: the smaller group's by percentage, the larger one fills up.

    Args:
        sizes: the client's samples of both groups; of equal groups the first counts as the smaller.
        percentages: [T] shares of the smaller group, summing to one.

    Returns:
        int64 [T, 2].
    """
    task_size = sum(sizes) // len(percentages)
    small = 1 if sizes[1] < sizes[0] else 0
    left = sizes[1 - small]
    counts = np.zeros((len(percentages), 2), dtype=np.int64)
    for task, percentage in enumerate(percentages):
        counts[task, small] = min(int(percentage * sizes[small]), task_size)
        counts[task, 1 - small] = min(task_size - counts[task, small], left)
        left -= int(counts[task, 1 - small])
    return counts


def fractions(counts: np.ndarray) -> np.ndarray:
    """Shares of the groups within each task, 0 in an empty task: float64 like `counts` [T, G]."""
    totals = counts.sum(1, keepdims=True)
    return np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)


def ratio_counts(sizes: Sequence[int], ratios: Sequence[Sequence[float]]) -> tuple[np.ndarray, int]:
    """Samples of each group by the given ratios after all groups were cut to the smallest, and extra ones per task.

    Returns:
        int64 [T, G], and how many samples of the pool (what was cut off) each task gets besides.
    """
    smallest, num_tasks = min(sizes), len(ratios)
    per_task = int(len(sizes) * smallest / num_tasks)
    counts = np.array([[int(per_task * share) for share in row] for row in ratios], dtype=np.int64)
    left = np.full(len(sizes), smallest)
    for task in range(num_tasks):
        counts[task] = np.minimum(counts[task], left)
        left = left - counts[task]
    return counts, int((sum(sizes) - len(sizes) * smallest) / num_tasks)


def drawn_counts(sizes: Sequence[int], ratios: Sequence[Sequence[float]] | np.ndarray, task_size: int) -> np.ndarray:
    """Samples of each group that validation and test tasks draw from a whole table: ⌊m·ρ⌋, at most what is there.

    Args:
        sizes: [G] samples of each group in the table.
        ratios: [T, G] wanted shares; a shorter row (the original's defect B36) leaves the last groups out.
        task_size: m.

    Returns:
        int64 [T, G].
    """
    counts = np.zeros((len(ratios), len(sizes)), dtype=np.int64)
    for task, row in enumerate(ratios):
        for group, share in enumerate(row):
            counts[task, group] = min(int(task_size * share), sizes[group])
    return counts


def novel_counts(class_sizes: Sequence[int], speed: str, novel: int) -> np.ndarray:
    """Samples of each class in four tasks; the last task takes all that is left of the old classes.

    Args:
        class_sizes: [C] samples of the client.
        speed: `slow` or `rapid`.
        novel: the new class, whose rounding losses are dropped.

    Returns:
        int64 [4, C].
    """
    counts = np.zeros((4, len(class_sizes)), dtype=np.int64)
    new, old = NOVEL_SHARES[speed]
    for label, size in enumerate(class_sizes):
        shares = new if label == novel else old
        counts[:, label] = [int(share * size) for share in shares]
        if label != novel:
            counts[3, label] = size - counts[:3, label].sum()
    return counts
