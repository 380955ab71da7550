"""MNIST in its original form: four idx files, plain or gzipped (LeCun, Cortes and Burges, 1998)."""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from fedhpc.data.schema import SPLITS, shown
from fedhpc.data.sources.base import RawDataset, RawItem, ScanOptions, existing
from fedhpc.errors import DatasetError

IMAGE_MAGIC, LABEL_MAGIC = 0x803, 0x801
"""Big-endian: two zero bytes, type (8 = uint8), number of dimensions."""
NUM_CLASSES = 10

_MAX_BYTES = 1 << 31
_BLOCK_BYTES = 1 << 20
_STEMS = {"train": "train", "test": "t10k"}


@dataclass(frozen=True)
class Mnist:
    """70,000 digits, 28x28 gray, with their train and test split."""

    name: str = "mnist"
    embedded: bool = False
    layout: str = "a folder with {train,t10k}-images-idx3-ubyte and -labels-idx1-ubyte, plain or .gz"

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Read the four files; all of them must be there."""
        folder = _folder(existing(raw, self))
        items: list[RawItem] = []
        pixels: list[np.ndarray] = []
        for part, (split, stem) in enumerate(_STEMS.items()):
            images_path, labels_path = _find(folder, f"{stem}-images", 3), _find(folder, f"{stem}-labels", 1)
            images, labels = read_images(images_path), read_labels(labels_path)
            if len(images) != len(labels):
                message = f"{len(images):,} images, but {len(labels):,} labels in {labels_path.name}"
                raise DatasetError(f"{shown(str(images_path))}: {message}; download both again")
            pixels.append(images)
            code = SPLITS.index(split)
            items += [
                RawItem(f"{images_path.name}#{i}", int(label), split=code, key=(part, i))
                for i, label in enumerate(labels)
            ]
        return RawDataset(
            classes=tuple(str(c) for c in range(NUM_CLASSES)),
            environments=("mnist",),
            items=items,
            decode=lambda item: pixels[item.key[0]][item.key[1]][..., None],
        )


def read_images(path: Path) -> np.ndarray:
    """Read an idx3 file as uint8 [n, H, W].

    Raises:
        DatasetError: wrong magic number, cut short, or a header that does not fit the file.
    """
    return _read_idx(path, IMAGE_MAGIC, 3)


def read_labels(path: Path) -> np.ndarray:
    """Read an idx1 file as uint8 [n].

    Raises:
        DatasetError: wrong magic number, cut short, or labels above 9.
    """
    labels = _read_idx(path, LABEL_MAGIC, 1)
    if labels.max() >= NUM_CLASSES:
        raise DatasetError(f"{shown(str(path))}: label {labels.max()}, expected 0 to {NUM_CLASSES - 1}")
    return labels


def _folder(raw: Path) -> Path:
    nested = raw / "MNIST" / "raw"  # where torchvision keeps them
    return nested if nested.is_dir() else raw


def _find(folder: Path, stem: str, dimensions: int) -> Path:
    names = [f"{stem}{dot}idx{dimensions}-ubyte{end}" for dot in "-." for end in ("", ".gz")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DatasetError(f"{shown(str(folder))}: no {names[0]} or {names[1]} in it; expected {SOURCE.layout}")


def _read_idx(path: Path, magic: int, dimensions: int) -> np.ndarray:
    size = path.stat().st_size
    with open(path, "rb") as plain:
        compressed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        if not compressed:
            return _parse(path, plain, magic, dimensions, size)
        try:
            with gzip.open(plain) as stream:
                # Deflate can't shrink by more than about 1032; a header that claims more is false.
                return _parse(path, cast(BinaryIO, stream), magic, dimensions, size * 1032)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DatasetError(f"{shown(str(path))}: damaged gzip file ({error}); download it again") from None


def _parse(path: Path, stream: BinaryIO, magic: int, dimensions: int, most: int) -> np.ndarray:
    header = np.frombuffer(stream.read(4 * (dimensions + 1)).ljust(16, b"\0"), ">u4")
    if header[0] != magic:
        raise DatasetError(
            f"{shown(str(path))}: magic number {int(header[0])}, expected {magic}; not this kind of file"
        )
    shape = tuple(int(n) for n in header[1 : dimensions + 1])
    needed = math.prod(shape)
    if needed == 0:
        raise DatasetError(f"{shown(str(path))}: holds no samples")
    if needed > min(most, _MAX_BYTES):
        raise DatasetError(f"{shown(str(path))}: header claims {shape[0]:,} samples, more than the file can hold")
    content = bytearray()
    while len(content) <= needed and (block := stream.read(_BLOCK_BYTES)):
        content += block
    if len(content) != needed:
        there = f"{len(content):,} bytes" if len(content) < needed else "more"
        raise DatasetError(f"{shown(str(path))}: header says {shape[0]:,} samples ({needed:,} bytes), {there} there")
    return np.frombuffer(content, np.uint8).reshape(shape)


SOURCE = Mnist()
