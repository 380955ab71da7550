"""How strongly neighbouring pixels differ: the texture measure of the contrast study."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedhpc.errors import DatasetError

_CHUNK = 256
_NEIGHBOURS = ((0, 1), (1, 1), (1, 0), (1, -1))
"""Row and column steps of the four directions; scikit-image calls them 0, 45, 90 and 135 degrees."""


def contrast(image: np.ndarray) -> np.ndarray:
    """Contrast of the grey-level co-occurrence at distance 1 in four directions: float64 [4].

    With symmetric, normalised counts p(a, b), Σ p(a, b)(a - b)² is the mean squared difference of neighbours.

    Args:
        image: grey levels [H, W].

    Raises:
        DatasetError: fewer than two rows or columns.
    """
    if image.ndim != 2 or min(image.shape) < 2:
        raise DatasetError(f"contrast needs a grey image of at least 2x2 pixels, got {image.shape}")
    values = image.astype(np.float64)
    height, width = values.shape
    found = []
    for down, right in _NEIGHBOURS:
        first = values[: height - down, max(0, -right) : width - max(0, right)]
        second = values[down:, max(0, right) : width + min(0, right)]
        found.append(((first - second) ** 2).mean())
    return np.array(found)


def mean_contrast(pixels: np.ndarray) -> float:
    """Mean over the four directions for pixels [H, W, C]; colour is averaged first."""
    return float(contrast(pixels.astype(np.float64).mean(2)).mean())


def contrast_by_group(
    images: Callable[[np.ndarray], np.ndarray], groups: np.ndarray, names: Sequence[str]
) -> dict[str, list[float]]:
    """Contrast of every image, by group name; images without a group are left out.

    Args:
        images: indices -> pixels uint8 [k, H, W, C].
        groups: int [num_samples], -1 for none.
        names: of the groups.
    """
    found: dict[str, list[float]] = {}
    for group, name in enumerate(names):
        rows = np.flatnonzero(groups == group)
        chunks = [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]
        found[name] = [mean_contrast(pixels) for chunk in chunks for pixels in images(chunk)]
    return found
