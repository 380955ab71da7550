"""The 1,797 handwritten digits that ship inside scikit-learn: 8x8 gray, values 0 to 16, no split."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedhpc.data.sources.base import RawDataset, RawItem, ScanOptions


@dataclass(frozen=True)
class Digits:
    """The UCI optical digits, test part (Alpaydin and Kaynak 1998), as packaged by scikit-learn."""

    name: str = "digits"
    embedded: bool = True
    layout: str = "nothing: the images come with scikit-learn"

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Read the packaged images; `raw` is not used."""
        table = _packaged()
        images = table[:, :64].astype(np.uint8).reshape(-1, 8, 8, 1)
        items = [RawItem(f"digits/{i:04d}", int(label), key=i) for i, label in enumerate(table[:, 64])]
        return RawDataset(
            classes=tuple(str(c) for c in range(10)),
            environments=("digits",),
            items=items,
            decode=lambda item: images[item.key],
            pixel_max=16,
        )


def _packaged() -> NDArray[np.float64]:
    """The packaged table [1797, 65]: 64 pixels and the label; from its file, as loading scikit-learn takes seconds."""
    spec = find_spec("sklearn")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    for folder in folders:
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return np.column_stack([bunch.data, bunch.target])


SOURCE = Digits()
