"""Mean and standard error over trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Figure:
    """Mean and standard error over trials, in percent; None without a value.

    The standard error is the population's standard deviation over the square root of the number of values, as in the
    original; of a single value it is 0.
    """

    mean: float | None
    standard_error: float | None
    num_trials: int

    @classmethod
    def of(cls, accuracies: Sequence[float]) -> Figure:
        """Summarise accuracies (fractions)."""
        if not accuracies:
            return cls(None, None, 0)
        values = np.array(accuracies, dtype=np.float64)
        mean, deviation = 100 * np.mean(values), np.std(values)
        return cls(float(mean), float(100 * deviation / np.sqrt(len(values))), len(values))

    def error(self, compat: bool = False) -> float | None:
        """The standard error as a table may show it: None of a single trial, but with the original's rules 0."""
        return self.standard_error if compat or self.num_trials > 1 else None


NOTHING = Figure(None, None, 0)
"""Of no trial."""
