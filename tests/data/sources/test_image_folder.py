from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest

from fedhpc.data.prepare import prepare
from fedhpc.data.shards import ShardStore
from fedhpc.errors import DatasetError
from tests.raw_layouts import make_class_folders, make_environment_folders, pixels, save_png


def prepared(raw: Path, out: Path, **options: object) -> ShardStore:
    prepare("image_folder", raw, out, **options)  # type: ignore[arg-type]
    return ShardStore.open(out)


def test_class_folders(tmp_path: Path) -> None:
    store = prepared(make_class_folders(tmp_path / "raw"), tmp_path / "d")
    assert store.manifest.classes == ("ant", "bee")
    assert store.manifest.environments == ("raw",)
    assert store.table.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert set(store.table.split) == {255}
    expected = [pixels(10 * c + i, 6, 5, 3) for c in range(2) for i in range(3)]
    assert np.array_equal(store.images(np.arange(6)), np.stack(expected))


def test_environment_folders(tmp_path: Path) -> None:
    store = prepared(make_environment_folders(tmp_path / "raw"), tmp_path / "d")
    assert store.manifest.environments == ("paper", "wood")
    assert store.manifest.classes == ("ant", "bee")
    assert store.table.environment.tolist() == [0] * 4 + [1] * 4
    assert store.table.labels.tolist() == [0, 0, 1, 1] * 2
    expected = [pixels(100 * e + 10 * c + i, 6, 5, 3) for e in range(2) for c in range(2) for i in range(2)]
    assert np.array_equal(store.images(np.arange(8)), np.stack(expected))
    assert "read as environment folders" in store.manifest.notes[0]


def test_a_class_that_one_environment_lacks_keeps_one_index(tmp_path: Path) -> None:
    raw = make_environment_folders(tmp_path / "raw")
    save_png(raw / "wood" / "aaa" / "x.png", pixels(1, 6, 5, 3))
    store = prepared(raw, tmp_path / "d")
    assert store.manifest.classes == ("aaa", "ant", "bee")
    assert store.table.labels.tolist() == [1, 1, 2, 2, 0, 1, 1, 2, 2]


def test_a_stray_folder_becomes_no_environment(tmp_path: Path) -> None:
    """An environment more would shift the others, and be held out in a sweep."""
    raw = make_environment_folders(tmp_path / "raw")
    (raw / "notes").mkdir()
    (raw / "scratch" / "zoo").mkdir(parents=True)
    (raw / "scratch" / "zoo" / "readme.txt").touch()
    store = prepared(raw, tmp_path / "d")
    assert store.manifest.environments == ("paper", "wood")
    assert store.manifest.classes == ("ant", "bee")
    assert store.table.environment.tolist() == [0] * 4 + [1] * 4
    assert "folders without images are no environments and were left out: notes, scratch" in store.manifest.notes


def test_classes_that_an_environment_lacks_are_told(tmp_path: Path) -> None:
    raw = make_environment_folders(tmp_path / "raw")
    save_png(raw / "wood" / "aaa" / "x.png", pixels(1, 6, 5, 3))
    (raw / "paper" / "aaa").mkdir()
    assert "paper: no image of aaa" in prepared(raw, tmp_path / "d").manifest.notes
    for number in range(11):
        save_png(raw / "wood" / f"c{number:02}" / "x.png", pixels(1, 6, 5, 3))
    notes = prepared(raw, tmp_path / "e").manifest.notes
    assert [note for note in notes if "no image" in note] == [
        "paper: no image of aaa, c00, c01, c02, c03, c04, c05, c06, c07, c08 and 2 more"
    ]


def test_the_layout_can_be_told(tmp_path: Path) -> None:
    raw = make_environment_folders(tmp_path / "raw")
    store = prepared(raw, tmp_path / "d", layout="class")
    assert store.manifest.classes == ("paper", "wood")
    assert store.table.labels.tolist() == [0] * 4 + [1] * 4


def test_told_environments_refuse_images_without_a_class(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"ant/0\.png: lies outside the environment/class folders"):
        prepared(make_class_folders(tmp_path / "raw"), tmp_path / "d", layout="environment")


def test_images_in_no_folder_are_refused(tmp_path: Path) -> None:
    raw = make_class_folders(tmp_path / "raw")
    save_png(raw / "stray.png", pixels(1, 6, 5, 3))
    with pytest.raises(DatasetError, match=r"stray\.png: lies outside the class folders"):
        prepared(raw, tmp_path / "d")


def test_train_and_test_folders_are_splits_unless_told_otherwise(tmp_path: Path) -> None:
    for split in ("test", "train"):
        make_class_folders(tmp_path / "raw" / split)
    store = prepared(tmp_path / "raw", tmp_path / "d")
    assert store.table.split.tolist() == [2] * 6 + [0] * 6
    assert store.manifest.classes == ("ant", "bee")
    told = prepared(tmp_path / "raw", tmp_path / "e", layout="environment")
    assert told.manifest.environments == ("test", "train")
    assert set(told.table.split) == {255}


def test_a_wrapping_folder_is_seen_through(tmp_path: Path) -> None:
    make_environment_folders(tmp_path / "raw" / "PACS")
    store = prepared(tmp_path / "raw", tmp_path / "d")
    assert store.manifest.environments == ("paper", "wood")
    assert store.paths()[0] == "PACS/paper/ant/0.png"


@pytest.mark.parametrize("kind", ["a.tar", "a.tar.gz", "a.TGZ"])
def test_an_archive_reads_like_its_folder(tmp_path: Path, kind: str) -> None:
    raw = make_environment_folders(tmp_path / "raw")
    (raw / "wood" / "ant" / "._0.png").write_bytes(b"litter")
    mode = "w" if kind == "a.tar" else "w:gz"
    with tarfile.open(tmp_path / kind, mode) as archive:
        archive.add(raw, "./")
    folder, packed = prepared(raw, tmp_path / "d"), prepared(tmp_path / kind, tmp_path / "e")
    assert packed.paths() == folder.paths()
    assert packed.manifest.classes == folder.manifest.classes
    assert np.array_equal(packed.images(np.arange(8)), folder.images(np.arange(8)))


def test_names_and_links_in_an_archive_do_no_harm(tmp_path: Path) -> None:
    raw = make_class_folders(tmp_path / "raw")
    secret = tmp_path / "secret.png"
    save_png(secret, pixels(7, 6, 5, 3))
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(raw, "data")
        archive.add(secret, "data/ant/../../../escape.png")
        link = tarfile.TarInfo("data/ant/link.png")
        link.type, link.linkname = tarfile.SYMTYPE, str(secret)
        archive.addfile(link)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DatasetError, match=r"ant/link\.png: not a regular file in the archive"):
        prepared(tmp_path / "a.tar", tmp_path / "d")
    assert sorted(tmp_path.rglob("*")) == before
    prepare("image_folder", tmp_path / "a.tar", tmp_path / "d", on_bad="skip")
    assert len(ShardStore.open(tmp_path / "d").paths()) == 6


def test_gray_images_can_stay_gray(tmp_path: Path) -> None:
    gray = pixels(4, 6, 5)
    save_png(tmp_path / "raw" / "a" / "0.png", gray)
    assert np.array_equal(prepared(tmp_path / "raw", tmp_path / "d", channels=1).images(np.array([0]))[0, ..., 0], gray)


def test_pacs_reads_as_pil_does(shared_data: Path, tmp_path: Path) -> None:
    from PIL import Image

    raw = shared_data / "PACS" / "pacs-mini" / "PACS"
    store = prepared(raw, tmp_path / "d", size=96)
    assert store.manifest.environments == ("art_painting", "cartoon", "photo", "sketch")
    assert store.manifest.classes == ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    assert np.bincount(store.table.environment * 7 + store.table.labels).tolist() == [40] * 28
    paths = store.paths()
    rows = np.arange(0, 1120, 37)
    for row, image in zip(rows, store.images(rows), strict=True):
        expected = Image.open(raw / paths[row]).convert("RGB").resize((96, 96), Image.Resampling.BILINEAR)
        assert np.array_equal(image, np.asarray(expected))
        assert paths[row].split("/")[1] == store.manifest.classes[store.table.labels[row]]
