"""Open a dataset by name: a folder of shards, or an embedded dataset held in memory."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedhpc import registry
from fedhpc.data.schema import CATEGORY_TYPE, MANIFEST, MISSING_CATEGORY, NUMBER_TYPE, Manifest
from fedhpc.data.shards import ShardStore, attached_table, describe_table
from fedhpc.data.sources.base import RawDataset, ScanOptions, Source
from fedhpc.data.table import SampleTable
from fedhpc.errors import DataRequestError, DatasetError


class MemoryStore:
    """A small dataset in memory, with the interface of ShardStore.

    Attributes:
        manifest: what it holds; it has no shards.
        table: labels, environments, splits and attributes of all samples.
        seconds_reading: how long `images` took altogether.
    """

    def __init__(self, manifest: Manifest, table: SampleTable, pixels: np.ndarray) -> None:
        self.manifest, self.table, self._pixels = manifest, table, pixels
        self.seconds_reading = 0.0

    @property
    def num_samples(self) -> int:
        """Number of samples."""
        return self.manifest.num_samples

    def images(self, indices: np.ndarray) -> np.ndarray:
        """Return a copy of the pixels of some samples, uint8 [k, H, W, C], in the order asked for."""
        began, wanted = time.perf_counter(), np.asarray(indices, dtype=np.int64)
        if len(wanted) and wanted.min() < 0:
            raise IndexError(f"sample index {wanted.min()} is negative")
        found = self._pixels[wanted]
        self.seconds_reading += time.perf_counter() - began
        return found

    def describe(self) -> dict[str, Any]:
        """Return everything another rank needs, pixels included: embedded datasets are small."""
        return {**describe_table(self.manifest, self.table), "pixels": self._pixels}

    def close(self) -> None:
        """Nothing to release."""


Store = ShardStore | MemoryStore


def open_store(dataset: str, root: str | Path | None, key: str = "data.root") -> Store:
    """Open a dataset on one rank; the others `attach_store` to its `describe()`.

    Args:
        dataset: name of the source.
        root: folder that `prepare` made; None for an embedded dataset.
        key: where the user named the folder, for messages.

    Raises:
        DataRequestError: the folder is missing, not finished, or holds another dataset.
        DatasetError: it is damaged.
        ConfigError: no source of that name.
    """
    source: Source = registry.load("fedhpc.data.sources", dataset).SOURCE
    if root is None:
        return _embedded(source)
    require_dataset(dataset, root, key)
    store = ShardStore.open(root)
    if store.manifest.name != dataset:
        held = store.manifest.name
        remedy = f"set data.dataset: {held}" if key == "data.root" else f"name it {held}"
        raise DataRequestError(f"{key} {root}: holds the dataset '{held}', the config asks for '{dataset}'; {remedy}")
    return store


def require_dataset(dataset: str, root: str | Path, key: str) -> None:
    """Refuse a folder without a manifest.

    Args:
        dataset: name of the source, or any name for a folder of one's own images.
        root: the folder.
        key: where the user named it.

    Raises:
        DataRequestError: names the key and what would make the folder.
        DatasetError: the file system does not answer as it should.
    """
    try:
        os.stat(os.path.join(root, MANIFEST))
        return
    except (FileNotFoundError, NotADirectoryError):
        pass
    except PermissionError:
        raise DataRequestError(f"{key} {root}: cannot be read by this user; have its permissions changed") from None
    except OSError as error:  # a mount that is dead, say
        raise DatasetError(f"{key} {root}: cannot be read ({error.strerror})") from None
    sources = "fedhpc.data.sources"
    name = dataset if dataset in registry.names(sources) else "image_folder"
    embedded = registry.load(sources, name).SOURCE.embedded
    what = "is no finished dataset folder" if os.path.exists(root) else "no such folder"
    make = f"`fedhpc prepare {name}{'' if embedded else ' --raw RAW'} --out {root}` makes it"
    out = f", or leave the key out: {name} is embedded" if embedded else ""
    raise DataRequestError(f"{key} {root}: {what}; {make}{out}")


def attach_store(root: str | Path | None, description: Mapping[str, Any]) -> Store:
    """Build another rank's view of an opened dataset without opening an HDF5 file."""
    if "pixels" not in description:
        if root is None:
            raise DatasetError("data.root is missing: a dataset of shards needs its folder on every rank")
        return ShardStore.attach(root, description)
    manifest = Manifest.from_dict(description["manifest"])
    return MemoryStore(manifest, attached_table(manifest, description), description["pixels"])


def _embedded(source: Source) -> MemoryStore:
    if not source.embedded:
        raise DataRequestError(
            f"dataset '{source.name}' is not embedded: `fedhpc prepare {source.name} --raw RAW --out DIR` makes a "
            "folder of it; give that as data.root"
        )
    raw = source.scan(None, ScanOptions())
    pixels = np.stack([raw.decode(item) for item in raw.items])
    table = table_of(raw)
    height, width, channels = pixels.shape[1:]
    manifest = Manifest(
        name=source.name,
        classes=raw.classes,
        environments=raw.environments,
        height=height,
        width=width,
        channels=channels,
        shards=(),
        num_samples=len(pixels),
        pixel_max=raw.pixel_max,
        attributes={name: {} if known is None else {"values": list(known)} for name, known in raw.attributes.items()},
        notes=raw.notes,
    )
    return MemoryStore(manifest, table, pixels)


def table_of(raw: RawDataset) -> SampleTable:
    """The table of a scanned dataset, as `prepare` would store it."""
    return SampleTable(
        labels=np.array([item.label for item in raw.items], np.int64),
        environment=np.array([item.environment for item in raw.items], np.int64),
        split=np.array([item.split for item in raw.items], np.uint8),
        attributes={name: _column(raw, name, known) for name, known in raw.attributes.items()},
        class_names=raw.classes,
        environment_names=raw.environments,
    )


def _column(raw: RawDataset, name: str, categories: tuple[str, ...] | None) -> np.ndarray:
    """One attribute of all items: codes of its categories, or numbers."""
    values = [item.attributes.get(name) for item in raw.items]
    if categories is None:
        return np.array([np.nan if value is None else value for value in values], NUMBER_TYPE)
    codes = {category: code for code, category in enumerate(categories)}
    return np.array([MISSING_CATEGORY if v is None else codes[str(v)] for v in values], CATEGORY_TYPE)
