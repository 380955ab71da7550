"""Images and labels that somebody already packed into one .npz or .h5 file, as `x` and `y`."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedhpc.data.hdf5 import open_hdf5
from fedhpc.data.schema import shown
from fedhpc.data.sources.base import RawDataset, RawItem, ScanOptions, existing
from fedhpc.errors import DatasetError

_MAX_BYTES = 1 << 33
_MAX_CLASSES = 1 << 16
_NAMES = (("x", "y"), ("images", "labels"), ("data", "labels"))


@dataclass(frozen=True)
class Arrays:
    """Pixels uint8 [n, H, W], [n, H, W, C] or [n, C, H, W] with C = 1 or 3, and integer labels [n] from 0."""

    name: str = "arrays"
    embedded: bool = False
    layout: str = "an .npz or .h5 file with uint8 images x [n,H,W], [n,H,W,C] or [n,C,H,W] and integer labels y [n]"

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Read both arrays; pickled objects in them are refused."""
        raw = existing(raw, self)
        if not raw.is_file() or raw.suffix.lower() not in (".npz", ".h5", ".hdf5"):
            raise DatasetError(f"{shown(str(raw))}: dataset '{self.name}' needs {self.layout}")
        with _opened(raw) as arrays:
            names = next((pair for pair in _NAMES if set(pair) <= set(arrays)), None)
            if names is None:
                told = ", ".join(sorted(map(str, arrays))) or "nothing"
                raise DatasetError(f"{shown(str(raw))}: holds {told}; expected {self.layout}")
            pixels, labels = (_array(raw, arrays, name) for name in names)
        images, classes = _images(raw, names[0], pixels), _num_classes(raw, names[1], labels)
        if len(images) != len(labels):
            raise DatasetError(
                f"{shown(str(raw))}: {len(images):,} images in {names[0]}, {len(labels):,} in {names[1]}"
            )
        return RawDataset(
            classes=tuple(str(c) for c in range(classes)),
            environments=(raw.stem,),
            items=[RawItem(f"{raw.name}#{i}", int(label), key=i) for i, label in enumerate(labels)],
            decode=lambda item: images[item.key],
        )


@contextmanager
def _opened(raw: Path) -> Iterator[Mapping[str, Any]]:
    if raw.suffix.lower() != ".npz":
        with open_hdf5(raw) as file:
            yield file
        return
    try:
        with np.load(raw, allow_pickle=False) as arrays:
            yield arrays
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(f"{shown(str(raw))}: not a readable .npz file ({error})") from None


def _array(raw: Path, arrays: Mapping[str, Any], name: str) -> np.ndarray:
    where = f"{shown(str(raw))}: '{name}'"
    try:
        found = arrays[name]
        if not hasattr(found, "dtype") or found.dtype.kind not in "iuf":
            raise DatasetError(f"{where} is no array of numbers")
        if found.nbytes > _MAX_BYTES:
            raise DatasetError(f"{where} claims {found.nbytes:,} bytes, the limit is {_MAX_BYTES:,}")
        return np.asarray(found[()])
    except DatasetError:
        raise
    except (ValueError, MemoryError) as error:  # numpy's word for pickled objects
        raise DatasetError(f"{where} can't be read ({error})") from None


def _images(raw: Path, name: str, pixels: np.ndarray) -> np.ndarray:
    where = f"{shown(str(raw))}: '{name}'"
    if pixels.dtype.kind == "f" and not np.isfinite(pixels).all():
        raise DatasetError(f"{where} holds {np.count_nonzero(~np.isfinite(pixels)):,} values that are NaN or infinite")
    if pixels.dtype != np.uint8:
        raise DatasetError(f"{where} is {pixels.dtype}, expected uint8")
    if not pixels.size:
        raise DatasetError(f"{where} holds no samples")
    if pixels.ndim == 3:
        return pixels[..., None]
    if pixels.ndim == 4 and pixels.shape[3] in (1, 3):
        return pixels
    if pixels.ndim == 4 and pixels.shape[1] in (1, 3):
        return pixels.transpose(0, 2, 3, 1)
    raise DatasetError(f"{where} has shape {pixels.shape}, expected [n, H, W], [n, H, W, C] or [n, C, H, W]")


def _num_classes(raw: Path, name: str, labels: np.ndarray) -> int:
    where = f"{shown(str(raw))}: '{name}'"
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DatasetError(f"{where} is {labels.dtype} of shape {labels.shape}, expected integers [n]")
    if not len(labels) or labels.min() < 0 or labels.max() >= _MAX_CLASSES:
        raise DatasetError(f"{where} holds no labels, or some outside 0..{_MAX_CLASSES - 1}")
    return int(labels.max()) + 1


SOURCE = Arrays()
