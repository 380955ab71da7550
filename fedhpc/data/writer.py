"""ShardWriter: samples in, a finished dataset folder out, or nothing at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

import fedhpc
from fedhpc.data import schema
from fedhpc.data._staging import Staging
from fedhpc.data.hdf5 import array_sum, open_hdf5, text_sum
from fedhpc.data.schema import BadFile, Manifest, ShardEntry, shown
from fedhpc.errors import DatasetError

if TYPE_CHECKING:
    import h5py

SHARD_BYTES = 1 << 30
_BLOCK_BYTES = 1 << 22


class ShardWriter:
    """Write a dataset folder, a bounded block of pixels at a time; the folder appears complete or not at all.

    Use it as a context manager: leaving the block normally publishes the dataset, an exception removes every trace.

    Args:
        out: folder to make; refused if it holds anything.
        name: of the source.
        classes: class names.
        environments: environment names.
        shape: (height, width, channels) of every image.
        expected: an upper bound of the number of samples; sizes the shards and checks the free space.
        pixel_max: value of a white pixel.
        attributes: name -> categories, or None for numbers.
        shard_bytes: pixels per shard at most.

    Raises:
        DatasetError: `out` is in use or not writable, or the disk is too small.
    """

    def __init__(
        self,
        out: Path,
        *,
        name: str,
        classes: Sequence[str],
        environments: Sequence[str],
        shape: tuple[int, int, int],
        expected: int,
        pixel_max: int = 255,
        attributes: Mapping[str, tuple[str, ...] | None] | None = None,
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        self._out = Path(os.path.abspath(out))
        self._about: dict[str, Any] = {"name": name, "pixel_max": pixel_max, "fedhpc": fedhpc.__version__}
        self._classes, self._environments, self._shape = tuple(classes), tuple(environments), shape
        self._attributes = dict(attributes or {})
        self._codes = {k: {c: i for i, c in enumerate(v)} for k, v in self._attributes.items() if v is not None}
        self._expected, self._written = expected, 0
        sample_bytes = int(np.prod(shape))
        self._shard_rows = max(1, shard_bytes // sample_bytes)
        self._block_rows = max(1, _BLOCK_BYTES // sample_bytes)
        self._shards: list[ShardEntry] = []
        self._shard: _OpenShard | None = None
        self._staging = Staging(self._out)
        try:
            self._check_space(expected * sample_bytes)
        except DatasetError:
            self._staging.discard()
            raise
        self._skipped: Sequence[BadFile] = ()
        self._notes: tuple[str, ...] = ()
        self.manifest: Manifest | None = None

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._discard()
            return
        try:
            self._finish()
        except (OSError, RuntimeError) as caught:
            self._discard()
            raise self._failed(caught) from caught
        except BaseException:
            self._discard()
            raise

    def add(
        self,
        image: np.ndarray,
        *,
        label: int,
        environment: int = 0,
        split: int = schema.UNASSIGNED,
        path: str = "",
        attributes: Mapping[str, str | float | None] | None = None,
    ) -> None:
        """Append one sample.

        Args:
            image: uint8 [H, W, C].
            label: class index.
            environment: environment index.
            split: split code.
            path: where it came from.
            attributes: values by name; a missing name or None is missing.
        """
        if image.dtype != np.uint8 or image.shape != self._shape:
            raise ValueError(f"{shown(path)}: image {image.dtype} {image.shape}, expected uint8 {self._shape}")
        if not (0 <= label < len(self._classes) and 0 <= environment < len(self._environments)):
            raise ValueError(f"{shown(path)}: label {label} or environment {environment} out of range")
        values = {name: self._encode(name, (attributes or {}).get(name)) for name in self._attributes}
        try:
            self._append(image, label, environment, split, path, values)
        except (OSError, RuntimeError) as caught:
            raise self._failed(caught) from caught

    def _append(
        self, image: np.ndarray, label: int, environment: int, split: int, path: str, values: Mapping[str, float]
    ) -> None:
        if self._shard is None:
            rows = min(self._shard_rows, max(1, self._expected - self._written))
            target = self._staging.folder / f"shard-{len(self._shards):05d}.h5"
            self._shard = _OpenShard(target, rows, self._shape, min(rows, self._block_rows))
        self._shard.add(image, label, environment, split, path, values)
        self._written += 1
        if self._shard.is_full:
            self._close_shard()

    def describe(self, *, skipped: Sequence[BadFile] = (), notes: Sequence[str] = ()) -> None:
        """Set what the manifest says about files left out and about the raw folder."""
        self._skipped, self._notes = skipped, tuple(notes)

    def _encode(self, name: str, value: str | float | None) -> float:
        codes = self._codes.get(name)
        if codes is None:
            return float("nan") if value is None else float(value)
        return schema.MISSING_CATEGORY if value is None else codes[str(value)]

    def _close_shard(self) -> None:
        if self._shard is not None:
            types = {k: schema.CATEGORY_TYPE if k in self._codes else schema.NUMBER_TYPE for k in self._attributes}
            self._shards.append(self._shard.close(types))
            self._shard = None

    def _finish(self) -> None:
        self._close_shard()
        if not self._shards:
            raise DatasetError(f"{shown(str(self._out))}: no samples, so nothing was written")
        height, width, channels = self._shape
        self.manifest = Manifest(
            classes=self._classes,
            environments=self._environments,
            height=height,
            width=width,
            channels=channels,
            shards=tuple(self._shards),
            num_samples=self._written,
            attributes={k: {} if v is None else {"values": list(v)} for k, v in self._attributes.items()},
            num_skipped=len(self._skipped),
            skipped=tuple(self._skipped[: schema.MAX_LISTED]),
            notes=self._notes,
            **self._about,
        )
        (self._staging.folder / schema.MANIFEST).write_text(self.manifest.to_json(), encoding="ascii")
        self._staging.publish()

    def _discard(self) -> None:
        if self._shard is not None:
            self._shard.abandon()
        self._staging.discard()

    def _check_space(self, needed: int) -> None:
        free = shutil.disk_usage(self._staging.folder).free
        if needed > free:
            where = shown(str(self._out.parent))
            raise DatasetError(f"{where}: {needed:,} bytes of pixels to write, {free:,} free; choose another --out")

    def _failed(self, error: Exception) -> DatasetError:
        """Say in one line what h5py says in many; it raises OSError while writing and RuntimeError while closing."""
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if number else (str(error) or type(error).__name__).splitlines()[0]
        return DatasetError(f"{shown(str(self._out))}: writing failed ({reason}); nothing was left behind")


class _OpenShard:
    """One shard while it is written: pixels go to disk block by block, the small columns at the end."""

    def __init__(self, path: Path, rows: int, shape: tuple[int, int, int], block_rows: int) -> None:
        self._path, self._rows, self._shape = path, rows, shape
        self._opening = open_hdf5(path, "w")
        self._file = self._opening.__enter__()
        self._images = _create_images(self._file, rows, shape)
        self._block = np.empty((block_rows, *shape), np.uint8)
        self._filled, self._stored = 0, 0
        self._sum = hashlib.sha256()  # of what was meant to be written, never of what reads back
        self._columns: dict[str, list[int]] = {name: [] for name in schema.COLUMNS}
        self._paths: list[bytes] = []
        self._attributes: dict[str, list[float]] = {}

    @property
    def is_full(self) -> bool:
        return self._stored + self._filled == self._rows

    def add(
        self, image: np.ndarray, label: int, environment: int, split: int, path: str, values: Mapping[str, float]
    ) -> None:
        self._block[self._filled] = image
        self._filled += 1
        for name, code in zip(schema.COLUMNS, (label, environment, split), strict=True):
            self._columns[name].append(code)
        self._paths.append(path.encode("utf-8", "surrogateescape"))
        for name, value in values.items():
            self._attributes.setdefault(name, []).append(value)
        if self._filled == len(self._block):
            self._flush()

    def close(self, attribute_types: Mapping[str, str]) -> ShardEntry:
        self._flush()
        if self._stored < self._rows:
            self._repack()
        self._images.attrs["sha256"] = self._sum.hexdigest()
        for name, dtype in schema.COLUMNS.items():
            self._store(name, np.asarray(self._columns[name], dtype))
        for name, dtype in attribute_types.items():
            self._store(f"{schema.ATTRIBUTES}/{name}", np.asarray(self._attributes[name], dtype))
        import h5py

        paths = self._file.create_dataset(schema.PATH, data=self._paths, dtype=h5py.string_dtype("utf-8"))
        paths.attrs["sha256"] = text_sum(self._paths)
        self._file.attrs["format"], self._file.attrs["version"] = schema.FORMAT, schema.FORMAT_VERSION
        self._file.flush()
        offset = self._images.id.get_offset()
        self._opening.__exit__(None, None, None)
        return ShardEntry(self._path.name, self._stored, self._path.stat().st_size, offset)

    def abandon(self) -> None:
        # On a full disk HDF5 can't flush what is about to be removed anyway.
        with contextlib.suppress(OSError, RuntimeError):
            self._opening.__exit__(None, None, None)

    def _flush(self) -> None:
        if self._filled:
            block = self._block[: self._filled]
            self._images[self._stored : self._stored + self._filled] = block
            self._sum.update(block.data)
            self._stored, self._filled = self._stored + self._filled, 0

    def _repack(self) -> None:
        """Copy the rows there are to a file of that size: contiguous HDF5 datasets can't shrink."""
        target = self._path.with_suffix(".h5.repack")
        opening = open_hdf5(target, "w")
        file = opening.__enter__()
        images = _create_images(file, self._stored, self._shape)
        for start in range(0, self._stored, len(self._block)):
            stop = min(start + len(self._block), self._stored)
            images[start:stop] = self._images[start:stop]
        self._opening.__exit__(None, None, None)
        os.replace(target, self._path)
        self._opening, self._file, self._images = opening, file, images

    def _store(self, name: str, values: np.ndarray) -> None:
        self._file.create_dataset(name, data=values).attrs["sha256"] = array_sum([values])


def _create_images(file: h5py.File, rows: int, shape: tuple[int, int, int]) -> h5py.Dataset:
    return file.create_dataset(schema.IMAGES, (rows, *shape), "|u1", fill_time="never")
