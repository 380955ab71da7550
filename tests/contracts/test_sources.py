"""Every source in the folder keeps the contract that `fedhpc.data.prepare` and the users rely on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedhpc import registry
from fedhpc.data.prepare import SOURCES, prepare, verify
from fedhpc.data.schema import SPLITS, UNASSIGNED
from fedhpc.data.shards import ShardStore
from fedhpc.data.sources.base import RawDataset, ScanOptions, Source
from fedhpc.errors import DatasetError
from tests.raw_layouts import EXAMPLES

NAMES = registry.names(SOURCES)


def source_of(name: str) -> Source:
    return registry.load(SOURCES, name).SOURCE


def raw_of(name: str, folder: Path) -> Path | None:
    if source_of(name).embedded:
        return None
    if name not in EXAMPLES:
        pytest.skip(f"no raw example of '{name}' in tests/raw_layouts.py")
    return EXAMPLES[name](folder / "raw")


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def raw(name: str, tmp_path: Path) -> Path | None:
    return raw_of(name, tmp_path)


@pytest.fixture
def scanned(name: str, raw: Path | None) -> RawDataset:
    return source_of(name).scan(raw, ScanOptions())


def test_file_name_is_the_name(name: str) -> None:
    source = source_of(name)
    assert source.name == name
    assert source.layout


def test_items_are_in_range_and_named_once(scanned: RawDataset) -> None:
    assert len(scanned.items)
    assert len(set(scanned.classes)) == len(scanned.classes)
    assert len(set(scanned.environments)) == len(scanned.environments)
    assert all(0 <= item.label < len(scanned.classes) for item in scanned.items)
    assert all(0 <= item.environment < len(scanned.environments) for item in scanned.items)
    assert all(item.split in (*range(len(SPLITS)), UNASSIGNED) for item in scanned.items)
    assert all(set(item.attributes) <= set(scanned.attributes) for item in scanned.items)
    paths = [item.path for item in scanned.items]
    assert all(paths)
    assert len(set(paths)) == len(paths)


def test_decode_gives_pixels_within_the_stated_maximum(scanned: RawDataset) -> None:
    for item in scanned.items[:50]:
        image = scanned.decode(item)
        assert image.dtype == np.uint8
        assert image.ndim == 3
        assert image.max() <= scanned.pixel_max


def test_scan_and_decode_are_repeatable(name: str, raw: Path | None, scanned: RawDataset) -> None:
    again = source_of(name).scan(raw, ScanOptions())
    assert [(i.path, i.label, i.environment, i.split) for i in again.items] == [
        (i.path, i.label, i.environment, i.split) for i in scanned.items
    ]
    first, last = scanned.items[0], scanned.items[-1]
    assert np.array_equal(again.decode(again.items[-1]), scanned.decode(last))  # any order, not only front to back
    assert np.array_equal(again.decode(again.items[0]), scanned.decode(first))


def test_prepared_folder_holds_what_decode_gives(
    name: str, raw: Path | None, scanned: RawDataset, tmp_path: Path
) -> None:
    prepare(name, raw, tmp_path / "out")
    store = ShardStore.open(tmp_path / "out")
    assert verify(tmp_path / "out") == []
    assert store.paths() == [item.path for item in scanned.items]
    assert store.table.labels.tolist() == [item.label for item in scanned.items]
    assert store.table.split.tolist() == [item.split for item in scanned.items]
    rows = np.arange(0, store.num_samples, 7)
    assert np.array_equal(store.images(rows), np.stack([scanned.decode(scanned.items[i]) for i in rows]))


@pytest.mark.parametrize("kind", ["none", "absent", "empty", "text_file"])
def test_wrong_raw_is_refused_by_name(name: str, kind: str, tmp_path: Path) -> None:
    if source_of(name).embedded:
        pytest.skip("an embedded source needs no raw folder")
    raw = tmp_path / "raw-place"
    if kind == "empty":
        raw.mkdir()
    elif kind == "text_file":
        raw.write_text("not a dataset")
    with pytest.raises(DatasetError) as caught:
        source_of(name).scan(None if kind == "none" else raw, ScanOptions())
    assert (name if kind == "none" else "raw-place") in str(caught.value)
