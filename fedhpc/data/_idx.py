"""The idx files of MNIST: find the four, read them."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from fedhpc.data.schema import shown
from fedhpc.errors import DatasetError

IMAGE_MAGIC, LABEL_MAGIC = 0x803, 0x801
"""Big-endian: two zero bytes, type (8 = uint8), number of dimensions."""
NUM_CLASSES = 10
LAYOUT = "a folder with {train,t10k}-images-idx3-ubyte and -labels-idx1-ubyte, plain or .gz"
STEMS = ("train", "t10k")

_MAX_BYTES = 1 << 31
_BLOCK_BYTES = 1 << 20


def read_part(raw: Path, stem: str) -> tuple[np.ndarray, np.ndarray, str]:
    """Read one of the two parts.

    Args:
        raw: the folder, or the one above `MNIST/raw`.
        stem: one of STEMS.

    Returns:
        uint8 [n, H, W], uint8 [n], and the name of the images' file.

    Raises:
        DatasetError: a file is missing or damaged, or the two differ in length.
    """
    folder = _folder(raw)
    images_path, labels_path = _find(folder, f"{stem}-images", 3), _find(folder, f"{stem}-labels", 1)
    images, labels = read_images(images_path), read_labels(labels_path)
    if len(images) != len(labels):
        message = f"{len(images):,} images, but {len(labels):,} labels in {labels_path.name}"
        raise DatasetError(f"{shown(str(images_path))}: {message}; download both again")
    return images, labels, images_path.name


def read_pool(raw: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read both parts, the training images first: uint8 [n, H, W] and uint8 [n].

    Raises:
        DatasetError: a file is missing or damaged.
    """
    parts = [read_part(raw, stem) for stem in STEMS]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


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
    raise DatasetError(f"{shown(str(folder))}: no {names[0]} or {names[1]} in it; expected {LAYOUT}")


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
