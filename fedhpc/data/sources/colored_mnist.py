"""ColoredMNIST: three environments in which colour predicts the label better than shape does, or worse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedhpc.data._idx import LAYOUT, read_pool
from fedhpc.data._shifted_digits import COLOURS, colored, dealt, draws_of
from fedhpc.data.sources.base import RawDataset, ScanOptions, existing


@dataclass(frozen=True)
class ColoredMnist:
    """70,000 digits, 28x28, two colours; a label says whether a digit is below 5, and every fourth is wrong."""

    name: str = "colored_mnist"
    embedded: bool = False
    layout: str = LAYOUT
    environments: ClassVar[Mapping[str, int]] = dealt(70_000, tuple(COLOURS))
    shape: ClassVar[tuple[int, int, int]] = (28, 28, 2)

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Pool the two files of MNIST and deal the digits out; the option seed decides which goes where."""
        images, digits = read_pool(existing(raw, self))
        return colored(images, digits, draws_of(options))


SOURCE = ColoredMnist()
