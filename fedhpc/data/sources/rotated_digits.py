"""RotatedMNIST's construction on the digits that ship inside scikit-learn, to try a study anywhere in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedhpc.data._shifted_digits import draws_of, embedded_digits, rotated
from fedhpc.data.sources.base import RawDataset, ScanOptions

_ANGLES = (0, 15, 30, 45)
_SCALE = 15  # seventeen gray levels are too few to interpolate between


@dataclass(frozen=True)
class RotatedDigits:
    """1,797 digits, 8x8 gray, four environments."""

    name: str = "rotated_digits"
    embedded: bool = True
    layout: str = "nothing: the images come with scikit-learn"

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Deal the packaged images out; `raw` is not used."""
        images, digits = embedded_digits()
        return rotated(_SCALE * images, digits, draws_of(options), _ANGLES, options.interpolation, 16 * _SCALE)


SOURCE = RotatedDigits()
