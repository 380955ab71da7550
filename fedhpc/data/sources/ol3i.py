"""OL3I: abdominal CT slices for opportunistic screening of ischemic heart disease (Chaves et al., 2023)."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedhpc.data._files import open_tree
from fedhpc.data._medical import Intake, Sample, require_file
from fedhpc.data._tables import is_missing, read_table
from fedhpc.data.hdf5 import open_hdf5
from fedhpc.data.schema import split_code
from fedhpc.data.sources.base import BadSampleError, RawDataset, RawItem, ScanOptions, existing
from fedhpc.errors import DatasetError

CLASSES = ("no event", "event within 1 year")
SEX = {"0": "M", "1": "F"}
LOWEST, HIGHEST = -1000.0, 1000.0
"""Hounsfield units that become 0 and 255."""
SLICES = "l3_slices.h5"


@dataclass(frozen=True)
class Ol3i:
    """Units are exams, with their official split; slices are windowed to 8 bits."""

    name: str = "ol3i"
    embedded: bool = False
    layout: str = f"a folder with clinical_data.csv and {SLICES} (one square HU slice per anon_id)"

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Read the table and list the slices."""
        raw = existing(raw, self)
        if not raw.is_dir():
            raise DatasetError(f"{raw}: not a folder; dataset '{self.name}' needs {self.layout}")
        tree = open_tree(raw)
        table_path = require_file(tree, raw, self.name, "clinical_data.csv")
        slices = raw / require_file(tree, raw, f"{self.name} ({SLICES}: one HU slice per anon_id)", SLICES)
        intake = _samples(tree.read(table_path), table_path)
        with open_hdf5(slices) as file:
            there = set(file)
        reader = _Slices(slices, options.channels or 3)
        return intake.dataset(sorted(there), reader.read, CLASSES, (self.name,))


def windowed(hounsfield: np.ndarray) -> np.ndarray:
    """Clip to [-1000, 1000] and map to 0..255, halves to even: uint8 of the same shape."""
    clipped = np.clip(hounsfield.astype(np.float64), LOWEST, HIGHEST)
    return np.rint((clipped - LOWEST) / (HIGHEST - LOWEST) * 255).astype(np.uint8)


class _Slices:
    """Reads slices from one HDF5 file, opened at first use; HDF5 allows one thread at a time."""

    def __init__(self, path: Path, channels: int) -> None:
        self._path, self._channels, self._lock = path, channels, threading.Lock()

    def read(self, item: RawItem) -> np.ndarray:
        with self._lock:
            try:
                values = np.asarray(self._file[item.key][...])
            except (OSError, KeyError, RuntimeError, ValueError) as error:
                raise BadSampleError(f"slice can't be read ({error})") from None
        if values.ndim != 2 or values.shape[0] != values.shape[1]:
            raise BadSampleError(f"slice of shape {values.shape}, expected a square")
        return np.repeat(windowed(values)[:, :, None], self._channels, axis=2)

    @functools.cached_property
    def _file(self) -> Any:
        self._opened = open_hdf5(self._path)
        return self._opened.__enter__()


def _samples(content: bytes, path: str) -> Intake:
    table = read_table(content, path)
    intake = Intake.of(table)
    exam, age, sex = table.column("anon_id"), table.column("age"), table.column("sex")
    label, part = table.column("label_1y"), table.column("set_1y")
    for row in table.rows:
        cells = row.cells
        if is_missing(cells[part]):
            intake.dropped["no split for one year"] += 1
            continue
        split, value = split_code(cells[part]), cells[label].removesuffix(".0")
        if split is None or value not in ("0", "1"):
            intake.refuse(
                row.line, f"label_1y '{cells[label]}' and set_1y '{cells[part]}', expected 0 or 1 and a split"
            )
            continue
        attributes = intake.demographics(cells[age], cells[sex].removesuffix(".0"), SEX)
        if attributes is not None:
            intake.samples.append(Sample(row.line, cells[exam], int(value), split=split, attributes=attributes))
    return intake


SOURCE = Ol3i()
