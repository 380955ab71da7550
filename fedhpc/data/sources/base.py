"""What a dataset's raw files look like to the rest of the package: items with labels, and a way to decode each.

A new dataset is one new file in this folder with a `SOURCE` in it. Its `scan` finds the samples (cheap: names, tables,
headers) and its `decode` returns the pixels of one; resizing, checks, checksums and shards are done by
`fedhpc.data.prepare`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from fedhpc.data.schema import UNASSIGNED, BadFile, shown
from fedhpc.errors import DataRequestError

_NO_ATTRIBUTES: Mapping[str, str | float | None] = {}


class BadSampleError(Exception):
    """One sample can't be decoded; the message is the reason, without the path."""


@dataclass(frozen=True)
class ScanOptions:
    """What a user may tell a source.

    Attributes:
        channels: channels of the decoded images; None leaves it to the source.
        layout: `auto`, `class` (class folders) or `environment` (environment folders with class folders in them).
        seed: of what a source draws at random: which digit goes to which environment, and colours.
        interpolation: `bilinear` or `bicubic`, of images that a source rotates.
    """

    channels: int | None = None
    layout: str = "auto"
    seed: int = 0
    interpolation: str = "bilinear"


@dataclass(frozen=True, slots=True)
class RawItem:
    """One sample before decoding.

    Attributes:
        path: where it came from, relative to the raw folder or archive; kept in the dataset.
        label: class index.
        environment: environment index.
        split: split code (`fedhpc.data.schema.SPLITS`), or UNASSIGNED.
        attributes: name -> category, number or None (missing); the names are those of `RawDataset.attributes`.
        key: whatever `decode` needs to find the pixels; not kept.
    """

    path: str
    label: int
    environment: int = 0
    split: int = UNASSIGNED
    attributes: Mapping[str, str | float | None] = field(default_factory=lambda: _NO_ATTRIBUTES)
    key: Any = None


@dataclass(frozen=True)
class RawDataset:
    """The samples of a raw folder.

    Attributes:
        classes: class names.
        environments: environment names.
        items: the samples in their final order.
        decode: item -> uint8 [H, W, C]; raises BadSampleError. May be called from several threads.
        pixel_max: value of a white pixel.
        attributes: name -> the categories, or None for numbers.
        bad: files that the scan itself found unusable.
        notes: warnings and remarks, one line each.
        fit: how images come to a wanted size, unless the user says otherwise (`fedhpc.data._images.fit`).
    """

    classes: tuple[str, ...]
    environments: tuple[str, ...]
    items: Sequence[RawItem]
    decode: Callable[[RawItem], np.ndarray]
    pixel_max: int = 255
    attributes: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    bad: tuple[BadFile, ...] = ()
    notes: tuple[str, ...] = ()
    fit: Literal["squeeze", "crop"] = "squeeze"


class Source(Protocol):
    """A dataset that can be prepared; `SOURCE` of a module in this folder.

    Attributes:
        embedded: the data come with a package: `scan` needs no raw folder.
        layout: one line for people: what the raw folder must hold.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def embedded(self) -> bool: ...  # noqa: D102

    @property
    def layout(self) -> str: ...  # noqa: D102

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Find the samples.

        Raises:
            DatasetError: nothing usable there; names the path and what was expected.
        """
        ...


def existing(raw: Path | None, source: Source) -> Path:
    """Return the raw path of a source that needs one.

    Raises:
        DataRequestError: none was given, or it does not exist.
    """
    if raw is None:
        raise DataRequestError(f"dataset '{source.name}' needs --raw: {source.layout}")
    if not raw.exists():
        needs = f"dataset '{source.name}' needs {source.layout}"
        raise DataRequestError(f"{shown(str(raw))}: no such file or folder; {needs}")
    return raw
