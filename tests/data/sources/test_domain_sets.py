"""The photo datasets of the domain-generalization study: what is found, left out, and said."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedhpc.data._files import Listing
from fedhpc.data.prepare import prepare
from fedhpc.data.shards import ShardStore
from fedhpc.data.sources import domain_net, office_home, pacs, terra_incognita, vlcs
from fedhpc.data.sources.base import RawDataset, ScanOptions
from fedhpc.errors import DatasetError
from tests.raw_layouts import make_domain_net, make_office_home, make_pacs, make_vlcs, pixels, save_png

PACS_COUNTS = {
    "art_painting": (379, 255, 285, 184, 201, 295, 449),
    "cartoon": (389, 457, 346, 135, 324, 288, 405),
    "photo": (189, 202, 182, 186, 199, 280, 432),
    "sketch": (772, 740, 753, 608, 816, 80, 160),
}
VLCS_COUNTS = {
    "Caltech101": (237, 123, 118, 67, 870),
    "LabelMe": (80, 1209, 88, 42, 1237),
    "SUN09": (20, 932, 1036, 30, 1264),
    "VOC2007": (330, 699, 428, 420, 1499),
}


class Listed:
    """A tree that is known by its paths only."""

    def __init__(self, paths: list[str]) -> None:
        parents = {"/".join(path.split("/")[:n]) for path in paths for n in (1, 2, 3) if path.count("/") >= n}
        self.listing = Listing(sorted(paths), sorted(parents))

    def read(self, path: str) -> bytes:
        raise AssertionError("listing reads no image")


def counts(dataset: RawDataset) -> dict[str, tuple[int, ...]]:
    found = Counter((item.environment, item.label) for item in dataset.items)
    labels = range(len(dataset.classes))
    return {name: tuple(found[e, c] for c in labels) for e, name in enumerate(dataset.environments)}


def zipped(folder: Path, archive: Path) -> Path:
    with zipfile.ZipFile(archive, "w") as out:
        for path in sorted(folder.rglob("*")):
            out.write(path, path.relative_to(folder))
    return archive


def test_all_of_pacs(shared_data: Path, tmp_path: Path) -> None:
    dataset = pacs.SOURCE.scan(shared_data / "PACS" / "pacs96.zip", ScanOptions())
    assert counts(dataset) == PACS_COUNTS
    assert dataset.notes == ()
    assert dataset.decode(dataset.items[-1]).shape == (96, 96, 3)


def test_original_size_pacs_is_prepared_and_its_gaps_told(shared_data: Path, tmp_path: Path) -> None:
    manifest = prepare("pacs", shared_data / "PACS" / "pacs-mini", tmp_path / "out")
    assert (manifest.height, manifest.width, manifest.num_samples) == (227, 227, 1120)
    assert "art_painting: 280 images, the complete dataset has 2,048" in manifest.notes
    store = ShardStore.open(tmp_path / "out")
    assert store.table.environment_names == tuple(PACS_COUNTS)
    assert np.bincount(store.table.environment).tolist() == [280] * 4


def test_all_of_vlcs_by_its_list(shared_data: Path) -> None:
    lines = (shared_data / "metadata" / "vlcs" / "vlcs_files.txt").read_text().splitlines()
    targets = [line.rpartition(" ") for line in lines]
    paths = [f"{folder}{i}_{source.rpartition('/')[2]}" for i, (source, _, folder) in enumerate(targets)]
    tree = Listed(paths)
    top = vlcs.SOURCE.find(tree)
    assert top == "VLCS"
    dataset = vlcs.SOURCE.read(tree, top, None)
    assert counts(dataset) == VLCS_COUNTS
    assert dataset.notes == ()


def test_duplicates_of_domain_net(shared_data: Path) -> None:
    folder = shared_data / "metadata" / "domainnet"
    duplicates = (folder / domain_net.DUPLICATES).read_text().splitlines()
    kept = [line.split()[0] for path in sorted(folder.glob("*_t*.txt")) for line in path.read_text().splitlines()]
    kept = sorted(set(kept) - set(duplicates))
    tree = Listed([f"domain_net/{path}" for path in {*kept, *duplicates}])
    top = domain_net.SOURCE.find(tree)
    assert top is not None
    dataset = domain_net.SOURCE.read(tree, top, None, frozenset(duplicates))
    assert sorted(item.path.removeprefix("domain_net/") for item in dataset.items) == kept
    assert "9,431 known duplicates were left out" in dataset.notes


def test_duplicates_are_found_beside_the_archives(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    unpacked = make_domain_net(tmp_path / "unpacked")
    for environment in domain_net.SOURCE.environments:
        (tmp_path / environment).mkdir()
        (unpacked / environment).rename(tmp_path / environment / environment)
        zipped(tmp_path / environment, raw / f"{environment}.zip")
    everything = domain_net.SOURCE.scan(raw, ScanOptions())
    assert any("fedhpc fetch domain_net" in note for note in everything.notes)
    (raw / domain_net.DUPLICATES).write_text("clipart/ant/1.png\nsketch/t-shirt/0.png\nreal/ant/no_such.png\n")
    cleaned = domain_net.SOURCE.scan(raw, ScanOptions())
    gone = {item.path for item in everything.items} - {item.path for item in cleaned.items}
    assert gone == {"clipart/ant/1.png", "sketch/t-shirt/0.png"}
    assert np.array_equal(cleaned.decode(cleaned.items[0]), pixels(0, 6, 5, 3))


def test_classes_come_from_all_environments(tmp_path: Path) -> None:
    """A class that one environment lacks must not shift the labels there."""
    raw = make_domain_net(tmp_path / "raw")
    for path in (raw / "painting" / "ant").iterdir():
        path.unlink()
    (raw / "painting" / "ant").rmdir()
    dataset = domain_net.SOURCE.scan(raw, ScanOptions())
    assert dataset.classes == ("The_Eiffel_Tower", "ant", "t-shirt")
    assert {dataset.classes[i.label] for i in dataset.items if i.environment == 2} == {"The_Eiffel_Tower", "t-shirt"}
    assert "painting: no image of ant" in dataset.notes
    assert "3 classes, the complete dataset has 345" in dataset.notes


def test_stray_folders_and_files_are_left_out_and_told(tmp_path: Path) -> None:
    raw = make_pacs(tmp_path / "raw")
    save_png(raw / "kfold" / "a_stray" / "dog" / "0.png", pixels(1, 6, 5, 3))
    save_png(raw / "kfold" / "photo" / "cat" / "0.png", pixels(2, 6, 5, 3))
    save_png(raw / "kfold" / "photo" / "lost.png", pixels(3, 6, 5, 3))
    (raw / "kfold" / "splits.txt").write_text("photo/dog/0.png 1")
    dataset = pacs.SOURCE.scan(raw, ScanOptions())
    assert dataset.environments == tuple(PACS_COUNTS)
    assert len(dataset.items) == 4 * 7 * 2
    assert "images outside the expected folders were left out: a_stray (1), photo (1), photo/cat (1)" in dataset.notes


def test_a_missing_environment_is_an_error(tmp_path: Path) -> None:
    raw = make_vlcs(tmp_path / "raw")
    (raw / "SUN09").rename(raw / "SUN")
    with pytest.raises(DatasetError, match=r"no folder SUN09 beside the others; expected \{Caltech101, "):
        vlcs.SOURCE.scan(raw, ScanOptions())
    with pytest.raises(DatasetError, match="not office_home"):
        office_home.SOURCE.scan(raw, ScanOptions())


@pytest.mark.parametrize("spelling", ["Real World", "Real_World", "RealWorld", "real-world"])
def test_spellings_of_a_folder(tmp_path: Path, spelling: str) -> None:
    raw = make_office_home(tmp_path / "raw")
    parent = raw / "OfficeHomeDataset_10072016"
    (parent / "Real World").rename(parent / spelling)
    dataset = office_home.SOURCE.scan(raw, ScanOptions())
    assert dataset.environments[3] == "Real World"
    assert sum(item.environment == 3 for item in dataset.items) == 6


def test_order_is_by_environment_class_and_file(tmp_path: Path) -> None:
    """Splits are lists of positions within an environment, in the order of the sorted class folders."""
    raw = make_domain_net(tmp_path / "raw")
    save_png(raw / "clipart" / "ant-hill" / "0.png", pixels(1, 6, 5, 3))  # sorts before ant/ as a path
    dataset = domain_net.SOURCE.scan(raw, ScanOptions())
    own = [item.path.split("/")[1] for item in dataset.items if item.environment == 0]
    assert own == ["The_Eiffel_Tower"] * 2 + ["ant"] * 2 + ["ant-hill"] + ["t-shirt"] * 2


def write_lists(folder: Path) -> None:
    """Two categories in one image, a place and a category that are not wanted, and an image in two lists."""
    categories = [{"id": i, "name": n} for i, n in enumerate(("bird", "cat", "car"))]
    images = [
        {"id": "a", "file_name": "a.png", "location": 38},
        {"id": "b", "file_name": "sub/b.png", "location": "100"},
        {"id": "c", "file_name": "c.png", "location": 7},
        {"id": "d", "file_name": "d.png", "location": 46},
    ]
    annotations = [("a", 0), ("a", 1), ("a", 1), ("b", 2), ("b", 0), ("c", 0), ("d", 0)]
    content = {
        "categories": categories,
        "images": images,
        "annotations": [{"image_id": i, "category_id": c} for i, c in annotations],
    }
    for name in ("cis_test", "cis_val", "train", "trans_test", "trans_val"):
        chosen = content if name in ("train", "cis_val") else {**content, "images": [], "annotations": []}
        path = folder / "eccv_18_annotation_files" / f"{name}_annotations.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(chosen))
    for i, name in enumerate("abc"):
        save_png(folder / "eccv_18_all_images_sm" / f"{name}.png", pixels(i, 6, 5, 3))


def test_terra_incognita_from_the_lists(tmp_path: Path) -> None:
    write_lists(tmp_path / "raw")
    dataset = terra_incognita.SOURCE.scan(tmp_path / "raw", ScanOptions())
    assert [i.path for i in dataset.items] == [
        "location_100/bird/b.png",
        "location_38/bird/a.png",
        "location_38/cat/a.png",
    ]
    assert [i.environment for i in dataset.items] == [0, 1, 1]
    assert np.array_equal(dataset.decode(dataset.items[2]), pixels(0, 6, 5, 3))
    assert [str(b) for b in dataset.bad] == ["location_46/bird/d.png: listed, but there is no such image"]


@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_terra_incognita_with_a_bad_list(tmp_path: Path, damage: str) -> None:
    write_lists(tmp_path / "raw")
    path = tmp_path / "raw" / "eccv_18_annotation_files" / "train_annotations.json"
    if damage == "cut":
        path.write_text(path.read_text()[:-20])
    else:
        path.unlink()
    with pytest.raises(DatasetError, match=r"train.*(get it again|among the lists)"):
        terra_incognita.SOURCE.scan(tmp_path / "raw", ScanOptions())


@pytest.mark.parametrize("damage", ["cut", "garbage", "empty"])
def test_a_damaged_zip_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    archive = zipped(make_pacs(tmp_path / "raw"), tmp_path / "PACS.zip")
    content = archive.read_bytes()
    archive.write_bytes({"cut": content[: len(content) // 2], "garbage": b"PK\3\4 no zip", "empty": b""}[damage])
    with pytest.raises(DatasetError, match=r"PACS\.zip: damaged archive"):
        pacs.SOURCE.scan(archive, ScanOptions())


def test_a_flipped_byte_in_a_zip_is_a_bad_file(tmp_path: Path) -> None:
    archive = zipped(make_pacs(tmp_path / "raw"), tmp_path / "PACS.zip")
    content = bytearray(archive.read_bytes())
    first = content.index(b"IHDR")
    content[first + 5] ^= 0xFF
    archive.write_bytes(bytes(content))
    with pytest.raises(DatasetError, match=r"1 bad file.*\n.*damaged in the archive"):
        prepare("pacs", archive, tmp_path / "out")


def test_names_that_lead_out_of_a_zip_are_left_out(tmp_path: Path) -> None:
    make_pacs(tmp_path / "raw")
    save_png(tmp_path / "evil.png", pixels(0, 6, 5, 3))
    archive = zipped(tmp_path / "raw", tmp_path / "PACS.zip")
    with zipfile.ZipFile(archive, "a") as out:
        out.write(tmp_path / "evil.png", "kfold/../../evil.png")
        out.write(tmp_path / "evil.png", "__MACOSX/kfold/photo/dog/._0.png")
    assert len(pacs.SOURCE.scan(archive, ScanOptions()).items) == 4 * 7 * 2
