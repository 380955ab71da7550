"""CORAL: match means and covariances of the features between environments."""

from __future__ import annotations

from torch import Tensor

from fedhpc.data.samples import Batch
from fedhpc.errors import ConfigError
from fedhpc.objectives._alignment import Alignment
from fedhpc.objectives.base import StepReport


def distance(a: Tensor, b: Tensor) -> Tensor:
    """Mean squared difference of the means plus that of the covariances, entry by entry; NaN for a single row.

    Args:
        a: [rows, num_features].
        b: [other rows, num_features].
    """
    mean_a, mean_b = a.mean(0, keepdim=True), b.mean(0, keepdim=True)
    covariance_a = (a - mean_a).T @ (a - mean_a) / (len(a) - 1)
    covariance_b = (b - mean_b).T @ (b - mean_b) / (len(b) - 1)
    return (mean_a - mean_b).square().mean() + (covariance_a - covariance_b).square().mean()


class Coral(Alignment):
    """Deep CORAL with means (Sun and Saenko, 2016)."""

    min_rows = 2

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        """See `Alignment.distance`."""
        return distance(a, b)

    def backward(self, minibatches: list[Batch]) -> StepReport:
        """See `Objective.backward`.

        Raises:
            ConfigError: a single sample of an environment, which has no covariance.
        """
        if len(minibatches) > 1 and min(len(b) for b in minibatches) < 2:
            raise ConfigError("objective coral: needs at least 2 samples of each environment in a step")
        return super().backward(minibatches)


OBJECTIVE = Coral
