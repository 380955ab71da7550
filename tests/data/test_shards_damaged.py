"""A damaged dataset folder is refused, or found out by `verify`, in a line that names the file and the remedy."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from fedhpc.data.prepare import verify
from fedhpc.data.schema import content_sum
from fedhpc.data.shards import ShardStore
from fedhpc.errors import DatasetError
from tests.data.shard_folder import IMAGES, NUM, change_manifest, flip, write

AGAIN = "copy it again, or prepare the dataset again from its raw files"


def test_a_truncated_shard_is_named_with_both_sizes(dataset: Path) -> None:
    shard = dataset / "shard-00003.h5"
    size = shard.stat().st_size
    os.truncate(shard, size // 2)
    with pytest.raises(DatasetError, match=rf"shard-00003\.h5: {size // 2:,} bytes, the manifest says {size:,}"):
        ShardStore.open(dataset)
    assert "shard-00003.h5" in verify(dataset)[0]


def test_a_shard_of_the_right_size_that_is_no_hdf5(dataset: Path) -> None:
    shard = dataset / "shard-00000.h5"
    shard.write_bytes(b"\0" * shard.stat().st_size)
    with pytest.raises(DatasetError, match=r"shard-00000\.h5: not a readable HDF5 file"):
        ShardStore.open(dataset)


def test_a_missing_shard_is_named(dataset: Path) -> None:
    (dataset / "shard-00002.h5").unlink()
    with pytest.raises(DatasetError, match=r"shard-00002\.h5: can't be read"):
        ShardStore.open(dataset)


def test_swapped_shards_of_another_dataset_are_refused(dataset: Path) -> None:
    """Same size and structure, other numbers of classes: the labels do not fit."""
    change_manifest(dataset, classes=["a", "b"])
    with pytest.raises(DatasetError, match=r"shard-00000\.h5: 'labels' holds values outside 0\.\.1"):
        ShardStore.open(dataset)


def test_a_changed_image_shape_is_refused(dataset: Path) -> None:
    change_manifest(dataset, height=5, width=6)
    with pytest.raises(DatasetError, match="not as in the manifest"):
        ShardStore.open(dataset)


def test_another_version_and_an_empty_dataset_are_refused(dataset: Path) -> None:
    change_manifest(dataset, version=2)
    with pytest.raises(DatasetError, match="format version 2"):
        ShardStore.open(dataset)
    change_manifest(dataset, version=1, shards=[], num_samples=0)
    with pytest.raises(DatasetError, match="no samples"):
        ShardStore.open(dataset)


def test_a_shard_that_shrinks_while_in_use_is_an_error_not_a_crash(dataset: Path) -> None:
    store = ShardStore.open(dataset)
    store.images(np.arange(NUM))
    os.truncate(dataset / "shard-00001.h5", 100)
    with pytest.raises(DatasetError, match=r"shard-00001\.h5: shrank while in use"):
        store.images(np.arange(7, 14))
    assert np.array_equal(store.images(np.arange(7)), IMAGES[:7])


def test_a_shard_that_vanishes_before_its_first_use(dataset: Path) -> None:
    store = ShardStore.open(dataset)
    (dataset / "shard-00001.h5").unlink()
    with pytest.raises(DatasetError, match=r"shard-00001\.h5"):
        store.images(np.arange(NUM))


def test_verify_finds_a_flipped_byte_in_the_pixels(dataset: Path) -> None:
    assert verify(dataset) == []
    store = ShardStore.open(dataset)
    entry = store.manifest.shards[4]
    flip(dataset / entry.file, entry.images_offset + 17)
    assert verify(dataset) == ["shard-00004.h5: 'images' does not match its checksum; " + AGAIN]


@pytest.mark.parametrize("text", [b"13.png", b"\x02\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00"])
def test_verify_finds_a_flipped_byte_in_a_path_or_label(dataset: Path, text: bytes) -> None:
    found = [p for p in sorted(dataset.glob("*.h5")) if text in p.read_bytes()]
    flip(found[0], found[0].read_bytes().index(text))
    problems = verify(dataset)
    assert len(problems) == 1
    assert found[0].name in problems[0]


def test_verify_finds_any_flipped_byte_that_changes_the_meaning(tmp_path: Path) -> None:
    """Flip bytes all over one shard; whatever verify lets pass must read exactly as before."""
    dataset = write(tmp_path / "d", shard_rows=NUM)
    shard = dataset / "shard-00000.h5"
    before = shard.read_bytes()
    passed = 0
    for place in range(0, len(before), 61):
        flip(shard, place)
        if not verify(dataset):
            passed += 1
            store = ShardStore.open(dataset)
            assert np.array_equal(store.images(np.arange(NUM)), IMAGES), place
            assert store.table.labels.tolist() == [i % 3 for i in range(NUM)], place
            assert store.paths() == [f"{i}.png" for i in range(NUM)], place
        shard.write_bytes(before)
    assert passed < len(before) // 61 * 0.8  # most bytes of a file this small are alignment


def test_verify_finds_an_edited_manifest(dataset: Path) -> None:
    change_manifest(dataset, classes=["a", "b", "z"])
    assert any("manifest.json: checksum differs" in problem for problem in verify(dataset))
    content = json.loads((dataset / "manifest.json").read_text())
    content.pop("sha256")
    change_manifest(dataset, sha256=content_sum(content))
    assert verify(dataset) == []
