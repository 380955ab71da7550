"""The 1,797 handwritten digits that ship inside scikit-learn: 8x8 gray, values 0 to 16, no split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedhpc.data.sources.base import RawDataset, RawItem, ScanOptions


@dataclass(frozen=True)
class Digits:
    """The UCI optical digits, test part (Alpaydin and Kaynak 1998), as packaged by scikit-learn."""

    name: str = "digits"
    embedded: bool = True
    layout: str = "nothing: the images come with scikit-learn"

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Read the packaged images; `raw` is not used."""
        from sklearn.datasets import load_digits

        bunch = load_digits()
        images = bunch.images.astype(np.uint8)[..., None]
        items = [RawItem(f"digits/{i:04d}", int(label), key=i) for i, label in enumerate(bunch.target)]
        return RawDataset(
            classes=tuple(str(c) for c in range(10)),
            environments=("digits",),
            items=items,
            decode=lambda item: images[item.key],
            pixel_max=16,
        )


SOURCE = Digits()
