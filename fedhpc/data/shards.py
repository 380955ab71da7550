"""ShardStore: read a dataset folder. One rank opens the HDF5 files, the others are told and only map the pixels."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedhpc.data import schema
from fedhpc.data.hdf5 import dataset_sum, open_hdf5
from fedhpc.data.schema import Manifest, ShardEntry, content_sum, read_manifest_dict, shown
from fedhpc.data.table import SampleTable
from fedhpc.errors import DatasetError

_AGAIN = "copy it again, or prepare the dataset again from its raw files"


@dataclass
class _Mapped:
    """A shard whose pixels are mapped; the open handle lets each read see a file that shrank."""

    handle: int
    images: np.memmap


class ShardStore:
    """A dataset on disk: its table in memory, its pixels mapped on first use (one copy per node, in the page cache).

    Attributes:
        root: the dataset folder.
        manifest: what it holds.
        table: labels, environments, splits and attributes of all samples.
        seconds_reading: how long `images` took altogether; on first use that is the file system's time.
    """

    def __init__(self, root: Path, manifest: Manifest, table: SampleTable) -> None:
        self.seconds_reading = 0.0
        self.root, self.manifest, self.table = root, manifest, table
        self._starts = np.cumsum([0] + [shard.num_samples for shard in manifest.shards])
        self._mapped: dict[int, _Mapped] = {}

    @classmethod
    def open(cls, root: str | Path) -> ShardStore:
        """Open a dataset folder and check format, version, sizes and ranges (not the checksums: `verify`).

        Raises:
            DatasetError: names the file, what is wrong with it and what to do.
        """
        root = Path(root)
        manifest = Manifest.from_dict(read_manifest_dict(root), shown(str(root / schema.MANIFEST)))
        if not manifest.shards or manifest.num_samples == 0:
            raise DatasetError(f"{shown(str(root))}: the dataset has no samples; prepare it again from its raw files")
        columns = [_read_columns(root / entry.file, entry, manifest) for entry in manifest.shards]
        if sum(entry.num_samples for entry in manifest.shards) != manifest.num_samples:
            raise DatasetError(f"{shown(str(root / schema.MANIFEST))}: shards and num_samples disagree; {_AGAIN}")
        joined = {name: np.concatenate([column[name] for column in columns]) for name in columns[0]}
        return cls(root, manifest, _table(manifest, joined))

    def describe(self) -> dict[str, Any]:
        """Return everything another rank needs to `attach`: small (about two bytes a sample) and picklable."""
        return describe_table(self.manifest, self.table)

    @classmethod
    def attach(cls, root: str | Path, description: Mapping[str, Any]) -> ShardStore:
        """Build a store from another rank's `describe()`; opens no file, and never an HDF5 one.

        Args:
            root: the dataset folder as this rank sees it.
            description: what the opening rank sent.
        """
        manifest = Manifest.from_dict(description["manifest"])
        return cls(Path(root), manifest, attached_table(manifest, description))

    @property
    def num_samples(self) -> int:
        """Number of samples."""
        return self.manifest.num_samples

    def images(self, indices: np.ndarray) -> np.ndarray:
        """Return the pixels of some samples, in the order asked for; an index may come more than once.

        Args:
            indices: int [k], global sample indices.

        Returns:
            uint8 [k, H, W, C], a copy.

        Raises:
            DatasetError: a shard vanished or shrank since the dataset was opened.
        """
        began, wanted = time.perf_counter(), np.asarray(indices, dtype=np.int64)
        if wanted.ndim != 1:
            raise ValueError(f"indices have {wanted.ndim} dimensions, expected 1")
        if len(wanted) and (wanted.min() < 0 or wanted.max() >= self.num_samples):
            raise IndexError(f"sample index out of range 0..{self.num_samples - 1}: {wanted.min()}..{wanted.max()}")
        out = np.empty((len(wanted), *self.manifest.sample_shape), np.uint8)
        shard_of = np.searchsorted(self._starts, wanted, side="right") - 1
        for shard in np.unique(shard_of):
            source = self._pixels(int(shard))
            where = np.flatnonzero(shard_of == shard)
            out[where] = source[wanted[where] - self._starts[shard]]
        self.seconds_reading += time.perf_counter() - began
        return out

    def paths(self) -> list[str]:
        """Return where each sample came from; reads the HDF5 files."""
        found: list[str] = []
        for entry in self.manifest.shards:
            with open_hdf5(self.root / entry.file) as file:
                found += [path.decode("utf-8", "surrogateescape") for path in file[schema.PATH][:]]
        return found

    def verify(self) -> list[str]:
        """Recompute every checksum and return the problems, one line each; an empty list means sound."""
        content = read_manifest_dict(self.root)
        stated = content.pop("sha256", None)
        problems = [] if stated == content_sum(content) else [f"{schema.MANIFEST}: checksum differs; {_AGAIN}"]
        for entry in self.manifest.shards:
            problems += _verify_shard(self.root / entry.file)
        return problems

    def close(self) -> None:
        """Release the mapped files; a later `images` maps them again."""
        for mapped in self._mapped.values():
            os.close(mapped.handle)
        self._mapped.clear()

    def _pixels(self, shard: int) -> np.memmap:
        entry = self.manifest.shards[shard]
        if shard not in self._mapped:
            self._mapped[shard] = self._map(entry)
        mapped = self._mapped[shard]
        # Touching a page beyond the end of a file kills the process (SIGBUS), so ask before every read.
        if os.fstat(mapped.handle).st_size < entry.bytes:
            raise DatasetError(f"{shown(str(self.root / entry.file))}: shrank while in use; {_AGAIN}")
        return mapped.images

    def _map(self, entry: ShardEntry) -> _Mapped:
        path = self.root / entry.file
        check_size(path, entry)
        shape = (entry.num_samples, *self.manifest.sample_shape)
        handle = os.open(path, os.O_RDONLY)
        return _Mapped(handle, np.memmap(path, np.uint8, "r", entry.images_offset, shape))


def check_size(path: Path, entry: ShardEntry) -> None:
    """Raise DatasetError unless the file is there and as long as the manifest says."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DatasetError(f"{shown(str(path))}: can't be read ({error.strerror}); {_AGAIN}") from None
    if size != entry.bytes:
        raise DatasetError(f"{shown(str(path))}: {size:,} bytes, the manifest says {entry.bytes:,}; {_AGAIN}")


def _read_columns(path: Path, entry: ShardEntry, manifest: Manifest) -> dict[str, np.ndarray]:
    """Check one shard against the manifest and read everything but pixels and paths."""
    check_size(path, entry)
    with open_hdf5(path) as file:
        if file.attrs.get("format") != schema.FORMAT or file.attrs.get("version") != schema.FORMAT_VERSION:
            raise DatasetError(f"{shown(str(path))}: not a shard of format version {schema.FORMAT_VERSION}; {_AGAIN}")
        names = [*schema.COLUMNS, *(f"{schema.ATTRIBUTES}/{name}" for name in manifest.attributes)]
        missing = [name for name in (schema.IMAGES, schema.PATH, *names) if name not in file]
        if missing:
            raise DatasetError(f"{shown(str(path))}: holds no {', '.join(missing)}; {_AGAIN}")
        images = file[schema.IMAGES]
        expected = (entry.num_samples, *manifest.sample_shape)
        if images.shape != expected or images.dtype != np.uint8 or images.id.get_offset() != entry.images_offset:
            raise DatasetError(
                f"{shown(str(path))}: images {images.dtype} {images.shape} are not as in the manifest; {_AGAIN}"
            )
        columns = {name: file[name][:] for name in names}
    for name, limit in ((schema.LABELS, len(manifest.classes)), (schema.ENVIRONMENT, len(manifest.environments))):
        values = columns[name]
        if len(values) != entry.num_samples or (values.min() < 0 or values.max() >= limit):
            raise DatasetError(f"{shown(str(path))}: '{name}' holds values outside 0..{limit - 1}; {_AGAIN}")
    return columns


def _verify_shard(path: Path) -> list[str]:
    problems: list[str] = []

    def check(name: str, item: Any) -> None:
        if hasattr(item, "shape") and dataset_sum(item) != item.attrs.get("sha256"):
            problems.append(f"{path.name}: '{name}' does not match its checksum; {_AGAIN}")

    try:
        with open_hdf5(path) as file:
            file.visititems(check)
    except DatasetError as error:
        problems.append(str(error))
    return problems


def _table(manifest: Manifest, columns: Mapping[str, np.ndarray]) -> SampleTable:
    return SampleTable(
        labels=np.asarray(columns[schema.LABELS], np.int64),
        environment=np.asarray(columns[schema.ENVIRONMENT], np.int64),
        split=np.asarray(columns[schema.SPLIT], np.uint8),
        attributes={
            name: np.asarray(columns[f"{schema.ATTRIBUTES}/{name}"], np.int32 if "values" in about else np.float32)
            for name, about in manifest.attributes.items()
        },
        class_names=manifest.classes,
        environment_names=manifest.environments,
    )


def describe_table(manifest: Manifest, table: SampleTable) -> dict[str, Any]:
    """Return a manifest and a table as plain containers and small arrays, fit to be sent to other ranks."""
    columns = {schema.LABELS: table.labels, schema.ENVIRONMENT: table.environment, schema.SPLIT: table.split}
    columns |= {f"{schema.ATTRIBUTES}/{name}": values for name, values in table.attributes.items()}
    return {"manifest": manifest.to_dict(), "columns": {k: _compact(v) for k, v in columns.items()}}


def attached_table(manifest: Manifest, description: Mapping[str, Any]) -> SampleTable:
    """Return the table of a description."""
    return _table(manifest, description["columns"])


def _compact(values: np.ndarray) -> np.ndarray:
    """Return the same integers in the smallest type that holds them."""
    if values.dtype.kind not in "iu" or not len(values):
        return values
    return values.astype(np.result_type(np.min_scalar_type(values.min()), np.min_scalar_type(values.max())))
