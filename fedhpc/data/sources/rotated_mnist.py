"""RotatedMNIST: six environments that differ by the angle at which digits are turned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedhpc.data._idx import LAYOUT, read_pool
from fedhpc.data._shifted_digits import ANGLES, dealt, draws_of, rotated
from fedhpc.data.sources.base import RawDataset, ScanOptions, existing


@dataclass(frozen=True)
class RotatedMnist:
    """70,000 digits, 28x28 gray."""

    name: str = "rotated_mnist"
    embedded: bool = False
    layout: str = LAYOUT
    environments: ClassVar[Mapping[str, int]] = dealt(70_000, tuple(map(str, ANGLES)))
    shape: ClassVar[tuple[int, int, int]] = (28, 28, 1)

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Pool the two files of MNIST and deal the digits out; the option seed decides which goes where."""
        images, digits = read_pool(existing(raw, self))
        return rotated(images, digits, draws_of(options), interpolation=options.interpolation)


SOURCE = RotatedMnist()
