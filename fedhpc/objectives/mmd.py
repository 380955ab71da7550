"""MMD: match the features' distributions between environments under a sum of Gaussian kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from fedhpc.objectives._alignment import Alignment

GAMMAS = (0.001, 0.01, 0.1, 1, 10, 100, 1000)

_SMALLEST = 1e-30


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """[rows of a, rows of b] squared Euclidean distances, at least 1e-30.

    As |a|² + |b|² - 2·a·b, which loses digits for close rows; the known answers contain that loss.
    """
    squares_a, squares_b = a.square().sum(1, keepdim=True), b.square().sum(1)
    return torch.addmm(squares_b, a, b.T, alpha=-2).add(squares_a).clamp_min(_SMALLEST)


def kernel(a: Tensor, b: Tensor) -> Tensor:
    """[rows of a, rows of b] the sum, not the mean, of the Gaussian kernels exp(-γ·distance²)."""
    distances = squared_distances(a, b)
    return torch.stack([distances.mul(-gamma).exp() for gamma in GAMMAS]).sum(0)


def distance(a: Tensor, b: Tensor) -> Tensor:
    """Biased squared maximum mean discrepancy: the diagonals count."""
    return kernel(a, a).mean() + kernel(b, b).mean() - 2 * kernel(a, b).mean()


class Mmd(Alignment):
    """Maximum mean discrepancy (Li et al., 2018)."""

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        """See `Alignment.distance`."""
        return distance(a, b)


OBJECTIVE = Mmd
