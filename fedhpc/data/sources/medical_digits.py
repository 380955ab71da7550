"""Handwritten digits dressed as a medical dataset: made-up patients, ages and sexes, and a long tail of classes.

For trying scenarios and recipes in seconds. Only the digits are real (scikit-learn's): class c keeps a share
10^(-c/9) of its images, three images in a row of a class are one patient, and images of old patients are dimmer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedhpc.data._units import three_parts
from fedhpc.data.sources.base import RawDataset, RawItem, ScanOptions
from fedhpc.seeding import generator

IMBALANCE = 10.0
"""Images of the largest class over those of the smallest."""
IMAGES_PER_PATIENT = 3
OLD = 60
DIMMED = 0.6


@dataclass(frozen=True)
class MedicalDigits:
    """Units are made-up patients; older patients have more of the rare classes."""

    name: str = "medical_digits"
    embedded: bool = True
    layout: str = "nothing: the images come with scikit-learn"

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Read the packaged images and make their patients up; `raw` is not used."""
        from sklearn.datasets import load_digits

        bunch = load_digits()
        rng = generator(0, "medical_digits")
        chosen: list[tuple[int, str, float, str]] = []
        for label in range(10):
            own = np.flatnonzero(bunch.target == label)
            own = own[: round(len(own) * IMBALANCE ** (-label / 9))]
            for start in range(0, len(own), IMAGES_PER_PATIENT):
                old = rng.random() < 0.3 + 0.05 * label
                age = float(rng.integers(OLD, 95) if old else rng.integers(18, OLD))
                sex = "MF"[int(rng.integers(2))]
                unit = f"patient{label}{start:04d}"
                chosen += [(int(i), unit, age, sex) for i in own[start : start + IMAGES_PER_PATIENT]]
        splits = three_parts([unit for _, unit, _, _ in chosen], 0.3)
        items = [
            RawItem(
                f"digits/{i:04d}",
                int(bunch.target[i]),
                split=int(split),
                attributes={"unit": unit, "age": age, "sex": sex},
                key=(i, age >= OLD),
            )
            for (i, unit, age, sex), split in zip(chosen, splits, strict=True)
        ]
        images = bunch.images

        def decode(item: RawItem) -> np.ndarray:
            row, old = item.key
            return np.rint(images[row] * (DIMMED if old else 1.0)).astype(np.uint8)[..., None]

        return RawDataset(
            classes=tuple(str(c) for c in range(10)),
            environments=(self.name,),
            items=items,
            decode=decode,
            pixel_max=16,
            attributes={"unit": tuple(sorted({unit for _, unit, _, _ in chosen})), "age": None, "sex": ("M", "F")},
            notes=("patients, ages and sexes are made up; only the digits are real",),
        )


SOURCE = MedicalDigits()
