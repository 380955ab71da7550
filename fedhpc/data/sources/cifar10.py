"""CIFAR-10: the original python batches, or images in train/<class> and test/<class>; a folder or a .tar.gz."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from fedhpc.data._files import FileTree, open_tree
from fedhpc.data._folders import read_folders
from fedhpc.data._pickles import load_batch, texts
from fedhpc.data.schema import SPLITS, shown
from fedhpc.data.sources.base import BadSampleError, RawDataset, RawItem, ScanOptions, existing
from fedhpc.errors import DatasetError

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIDE = 32

_BATCHES = {**{f"data_batch_{i}": "train" for i in range(1, 6)}, "test_batch": "test"}


@dataclass(frozen=True)
class Cifar10:
    """60,000 colour images, 32x32, ten classes, with their train and test split (Krizhevsky 2009)."""

    name: str = "cifar10"
    embedded: bool = False
    layout: str = "a folder or .tar.gz with cifar-10-batches-py/ or {train,test}/<class>/IMAGES"

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Find out which of the two layouts it is, and list the samples."""
        raw = existing(raw, self)
        tree = open_tree(raw)
        batches = _folder_with(tree.listing.files, "data_batch_1")
        if batches is not None:
            return _read_batches(tree, batches, raw)
        top = _folder_with(tree.listing.folders, "train")
        if top is None or _folder_with(tree.listing.folders, "test") != top:
            raise DatasetError(f"{shown(str(raw))}: not CIFAR-10; expected {self.layout}")
        dataset = read_folders(tree, "split", top, options.channels, name=self.name)
        _check_folders(raw, dataset.classes, _names_below(tree.listing.folders, top))
        return dataset


def _folder_with(paths: Sequence[str], name: str) -> str | None:
    """Return the topmost folder that holds `name`; the top itself is the empty string."""
    found = [PurePosixPath(path) for path in paths if path.rsplit("/", 1)[-1] == name]
    if not found:
        return None
    parent = str(min(found, key=lambda path: len(path.parts)).parent)
    return "" if parent == "." else parent


def _names_below(folders: Sequence[str], top: str) -> set[str]:
    return {str(PurePosixPath(path).name) for path in folders if str(PurePosixPath(path).parent) == (top or ".")}


def _check_folders(raw: Path, classes: Sequence[str], splits: set[str]) -> None:
    if tuple(classes) != CLASSES:
        differing = sorted(set(classes) ^ set(CLASSES))
        told = ", ".join(map(shown, differing))
        raise DatasetError(f"{shown(str(raw))}: class folders are not those of CIFAR-10 ({told}); use image_folder")
    if splits != {"train", "test"}:
        told = ", ".join(map(shown, sorted(splits - {"train", "test"})))
        raise DatasetError(f"{shown(str(raw))}: folders beside train and test: {told}; use image_folder")


def _read_batches(tree: FileTree, folder: str, raw: Path) -> RawDataset:
    prefix = f"{folder}/" if folder else ""
    missing = [name for name in _BATCHES if prefix + name not in tree.listing.files]
    if missing:
        raise DatasetError(f"{shown(str(raw))}: {', '.join(missing)} missing in {folder or 'it'}; download it again")
    items: list[RawItem] = []
    pixels: dict[str, np.ndarray] = {}
    for name, split in _BATCHES.items():
        images, labels, filenames = _read_batch(tree, prefix + name, raw)
        pixels[name] = images
        items += [
            RawItem(f"{prefix}{name}/{filename}", label, split=SPLITS.index(split), key=(name, row))
            for row, (label, filename) in enumerate(zip(labels, filenames, strict=True))
        ]
    return RawDataset(
        classes=_class_names(tree, f"{prefix}batches.meta", raw),
        environments=(SOURCE.name,),
        items=items,
        decode=lambda item: pixels[item.key[0]][item.key[1]],
    )


def _read_batch(tree: FileTree, path: str, raw: Path) -> tuple[np.ndarray, list[int], list[str]]:
    batch = _load(tree, path, raw)
    images, labels = batch.get("data"), batch.get("labels")
    where = f"{shown(str(raw))}: {shown(path)}"
    if not isinstance(images, np.ndarray) or images.ndim != 2 or images.shape[1] != 3 * SIDE * SIDE:
        raise DatasetError(f"{where}: 'data' is not an array of {3 * SIDE * SIDE} bytes a row; download it again")
    if not isinstance(labels, list) or len(labels) != len(images) or not len(images):
        raise DatasetError(f"{where}: {len(images)} images, but not as many labels; download it again")
    if not all(type(label) is int and 0 <= label < len(CLASSES) for label in labels):
        raise DatasetError(f"{where}: 'labels' holds something else than 0 to {len(CLASSES) - 1}; download it again")
    filenames = batch.get("filenames")
    if not isinstance(filenames, list) or len(filenames) != len(images):
        filenames = [str(row) for row in range(len(images))]
    channels_last = images.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return channels_last, labels, texts(filenames)


def _class_names(tree: FileTree, path: str, raw: Path) -> tuple[str, ...]:
    if path not in tree.listing.files:
        return CLASSES
    names = _load(tree, path, raw).get("label_names")
    if not isinstance(names, list) or len(names) != len(CLASSES):
        raise DatasetError(f"{shown(str(raw))}: {shown(path)}: 'label_names' is no list of ten; download it again")
    return tuple(texts(names))


def _load(tree: FileTree, path: str, raw: Path) -> dict[str, Any]:
    try:
        return load_batch(tree.read(path))
    except (ValueError, BadSampleError) as error:
        raise DatasetError(f"{shown(str(raw))}: {shown(path)}: {error}") from None


SOURCE = Cifar10()
