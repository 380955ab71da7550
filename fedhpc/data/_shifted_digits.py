"""Digits whose environments differ by colour or by angle (DomainBed, arXiv 2007.01434, section 5.1 of our notes)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from fedhpc.data.sources.base import RawDataset, RawItem, ScanOptions

COLOURS = {"+90%": 0.1, "+80%": 0.2, "-90%": 0.9}
"""Environment -> probability that the colour contradicts the label."""
LABEL_NOISE = 0.25
ANGLES = (0, 15, 30, 45, 60, 75)


class Draws(Protocol):
    """Random numbers of a dataset; injectable, so that tests can dictate them."""

    def permutation(self, n: int) -> np.ndarray:
        """An order of 0 ... n-1."""
        ...

    def uniform(self, n: int) -> np.ndarray:
        """float32 [n] in [0, 1)."""
        ...


class TorchDraws:
    """Torch's generator: with the seed of one of the original's runs the dataset of that run comes out."""

    def __init__(self, seed: int) -> None:
        import torch

        self._torch, self._generator = torch, torch.Generator().manual_seed(seed)

    def permutation(self, n: int) -> np.ndarray:
        """See `Draws.permutation`."""
        order: np.ndarray = self._torch.randperm(n, generator=self._generator).numpy()
        return order

    def uniform(self, n: int) -> np.ndarray:
        """See `Draws.uniform`."""
        values: np.ndarray = self._torch.rand(n, generator=self._generator).numpy()
        return values


def colored(images: np.ndarray, digits: np.ndarray, draws: Draws, pixel_max: int = 255) -> RawDataset:
    """Tell digits below 5 from the others, with noisy labels, and paint them in a colour that goes with the label.

    Args:
        images: uint8 [n, H, W].
        digits: [n], 0 to 9.
        draws: source of the order and of two vectors of uniforms per environment.
        pixel_max: value of a white pixel.

    Returns:
        Images of two channels, the digit in the one of its colour; environment by environment.
    """
    order, items = draws.permutation(len(images)), []
    for environment, (name, flip) in enumerate(COLOURS.items()):
        own = order[environment :: len(COLOURS)]
        labels = (digits[own] < 5) ^ (draws.uniform(len(own)) < np.float32(LABEL_NOISE))
        colours = labels ^ (draws.uniform(len(own)) < np.float32(flip))
        items += [
            RawItem(f"{name}/{index:05d}", int(label), environment, key=(int(index), int(colour)))
            for index, label, colour in zip(own, labels, colours, strict=True)
        ]

    def decode(item: RawItem) -> np.ndarray:
        index, colour = item.key
        painted = np.zeros((*images.shape[1:], 2), np.uint8)
        painted[..., colour] = images[index]
        return painted

    return RawDataset(("5 to 9", "0 to 4"), tuple(COLOURS), items, decode, pixel_max)


def rotated(
    images: np.ndarray,
    digits: np.ndarray,
    draws: Draws,
    angles: Sequence[int] = ANGLES,
    interpolation: str = "bilinear",
    pixel_max: int = 255,
) -> RawDataset:
    """Turn the digits of each environment counter-clockwise by its angle, in degrees, about the image centre.

    Args:
        images: uint8 [n, H, W].
        digits: [n], 0 to 9.
        draws: source of the order.
        angles: one per environment.
        interpolation: `bilinear` or `bicubic`.
        pixel_max: value of a white pixel.

    Returns:
        Gray images, environment by environment; what turns in from outside is black.
    """
    order, items = draws.permutation(len(images)), []
    for environment, angle in enumerate(angles):
        own = order[environment :: len(angles)]
        items += [RawItem(f"{angle}/{i:05d}", int(digits[i]), environment, key=(int(i), angle)) for i in own]

    def decode(item: RawItem) -> np.ndarray:
        from PIL import Image

        index, angle = item.key
        picture = Image.fromarray(images[index])
        return np.asarray(picture.rotate(angle, resample=Image.Resampling[interpolation.upper()]))[..., None]

    names = tuple(str(angle) for angle in angles)
    return RawDataset(tuple(str(c) for c in range(10)), names, items, decode, pixel_max)


def dealt(num_samples: int, names: Sequence[str]) -> dict[str, int]:
    """How many of some samples each environment gets: every len(names)-th of their order."""
    return {name: len(range(start, num_samples, len(names))) for start, name in enumerate(names)}


def embedded_digits() -> tuple[np.ndarray, np.ndarray]:
    """The 1,797 digits of scikit-learn: uint8 [n, 8, 8] with values up to 16, and int64 [n]."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return bunch.images.astype(np.uint8), bunch.target.astype(np.int64)


def draws_of(options: ScanOptions) -> Draws:
    """The draws that a user's seed gives."""
    return TorchDraws(options.seed)
