"""ColoredMNIST's construction on the digits that ship inside scikit-learn, to try a study anywhere in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedhpc.data._shifted_digits import colored, draws_of, embedded_digits
from fedhpc.data.sources.base import RawDataset, ScanOptions


@dataclass(frozen=True)
class ColoredDigits:
    """1,797 digits, 8x8, two colours, three environments."""

    name: str = "colored_digits"
    embedded: bool = True
    layout: str = "nothing: the images come with scikit-learn"

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Deal the packaged images out; `raw` is not used."""
        images, digits = embedded_digits()
        return colored(images, digits, draws_of(options), pixel_max=16)


SOURCE = ColoredDigits()
