"""MNIST in its original form: four idx files, plain or gzipped (LeCun, Cortes and Burges, 1998)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedhpc.data._idx import LAYOUT, NUM_CLASSES, STEMS, read_part
from fedhpc.data.schema import SPLITS
from fedhpc.data.sources.base import RawDataset, RawItem, ScanOptions, existing

_SPLITS = dict(zip(STEMS, ("train", "test"), strict=True))


@dataclass(frozen=True)
class Mnist:
    """70,000 digits, 28x28 gray, with their train and test split."""

    name: str = "mnist"
    embedded: bool = False
    layout: str = LAYOUT

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Read the four files; all of them must be there."""
        folder = existing(raw, self)
        items: list[RawItem] = []
        pixels: list[np.ndarray] = []
        for part, (stem, split) in enumerate(_SPLITS.items()):
            images, labels, name = read_part(folder, stem)
            pixels.append(images)
            code = SPLITS.index(split)
            items += [RawItem(f"{name}#{i}", int(y), split=code, key=(part, i)) for i, y in enumerate(labels)]
        return RawDataset(
            classes=tuple(str(c) for c in range(NUM_CLASSES)),
            environments=("mnist",),
            items=items,
            decode=lambda item: pixels[item.key[0]][item.key[1]][..., None],
        )


SOURCE = Mnist()
