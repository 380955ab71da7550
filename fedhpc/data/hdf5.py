"""The one place that opens HDF5 files, and the checksums of what they hold."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedhpc.errors import DatasetError

if TYPE_CHECKING:
    import h5py
    import numpy as np

_DAMAGE = (OSError, KeyError, RuntimeError, ValueError, TypeError, MemoryError)
"""What h5py raises when it meets damaged structures."""
_ALIGNED_FROM, _ALIGNMENT = 1 << 16, 4096
_BLOCK_BYTES = 1 << 24


@contextmanager
def open_hdf5(path: Path, mode: Literal["r", "w"] = "r") -> Iterator[h5py.File]:
    """Open an HDF5 file for reading, or make a new one.

    HDF5's own file locks are off in both modes: parallel file systems often have none, and a finished file is never
    written again (writers work on a private name and rename). New files are readable by HDF5 1.10 and later and
    checksum their own metadata.

    Raises:
        DatasetError: the file to read is missing, truncated, no HDF5 file, or found damaged while it is read.
    """
    import h5py

    options: dict[str, Any] = {"locking": False}
    if mode == "w":
        options |= {
            "libver": ("v110", "v110"),
            "alignment_threshold": _ALIGNED_FROM,
            "alignment_interval": _ALIGNMENT,
        }
    if mode == "w":
        with h5py.File(path, "x", **options) as file:
            yield file
        return
    try:
        with h5py.File(path, "r", **options) as file:
            yield file
    except DatasetError:
        raise
    except _DAMAGE as error:
        told = _first_line(error)
        raise DatasetError(f"{path}: not a readable HDF5 file ({told}); copy or prepare it again") from None


def array_sum(blocks: Iterable[np.ndarray]) -> str:
    """Return the SHA-256 of the bytes of consecutive blocks of rows."""
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block.tobytes())
    return digest.hexdigest()


def text_sum(texts: Iterable[bytes]) -> str:
    """Return the SHA-256 of a column of strings, each with its length before it."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(len(text).to_bytes(8, "little"))
        digest.update(text)
    return digest.hexdigest()


def dataset_sum(dataset: h5py.Dataset) -> str:
    """Recompute the checksum of a stored HDF5 dataset, reading a bounded block at a time."""
    if dataset.dtype.kind == "O":
        return text_sum(dataset[:])
    row = max(1, dataset.dtype.itemsize * int(dataset.size // max(1, len(dataset))))
    step = max(1, _BLOCK_BYTES // row)
    return array_sum(dataset[start : start + step] for start in range(0, len(dataset), step))


def _first_line(error: Exception) -> str:
    return str(error).strip("'\"").splitlines()[0] if str(error) else type(error).__name__
