from __future__ import annotations

import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhpc.data._pickles import load_batch
from fedhpc.data.prepare import prepare
from fedhpc.data.shards import ShardStore
from fedhpc.errors import DatasetError
from tests.raw_layouts import CIFAR_CLASSES, make_cifar_batches, make_cifar_folders, pixels


def test_original_batches_read_as_plain_pickle_does(shared_data: Path, tmp_path: Path) -> None:
    raw = shared_data / "cifar10" / "cifar-10-batches-py-lossy-mini"
    prepare("cifar10", raw, tmp_path / "d")
    store = ShardStore.open(tmp_path / "d")
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    # Trusted files of our own, so the ordinary unpickler may serve as the reference.
    batches = [pickle.loads((raw / "cifar-10-batches-py" / n).read_bytes(), encoding="latin1") for n in names]
    images = np.concatenate([b["data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for b in batches])
    assert np.array_equal(store.images(np.arange(600)), images)
    assert store.table.labels.tolist() == [label for b in batches for label in b["labels"]]
    assert store.table.split.tolist() == [0] * 500 + [2] * 100
    assert store.manifest.classes == CIFAR_CLASSES
    assert store.paths()[0] == f"cifar-10-batches-py/data_batch_1/{batches[0]['filenames'][0]}"


def test_class_folders_read_as_pil_does(shared_data: Path, tmp_path: Path) -> None:
    from PIL import Image

    raw = shared_data / "cifar10" / "cifar10-mini"
    prepare("cifar10", raw, tmp_path / "d")
    store = ShardStore.open(tmp_path / "d")
    assert store.manifest.classes == CIFAR_CLASSES
    assert np.bincount(store.table.labels + 10 * (store.table.split == 2)).tolist() == [200] * 10 + [100] * 10
    paths, rows = store.paths(), np.arange(0, 3000, 41)
    for row, image in zip(rows, store.images(rows), strict=True):
        assert np.array_equal(image, np.asarray(Image.open(raw / paths[row])))
        assert paths[row].split("/")[-2] == CIFAR_CLASSES[store.table.labels[row]]
        assert paths[row].split("/")[-3] == ("test" if store.table.split[row] == 2 else "train")


@pytest.mark.parametrize("make", [make_cifar_batches, make_cifar_folders])
def test_an_archive_gives_the_same_dataset(tmp_path: Path, make: Any) -> None:
    raw = make(tmp_path / "raw")
    with tarfile.open(tmp_path / "c.tar.gz", "w:gz") as archive:
        for path in raw.iterdir():
            archive.add(path, path.name)
    prepare("cifar10", raw, tmp_path / "d")
    prepare("cifar10", tmp_path / "c.tar.gz", tmp_path / "e")
    shards = [(tmp_path / name / "shard-00000.h5").read_bytes() for name in "de"]
    assert shards[0] == shards[1]


@pytest.mark.parametrize("protocol", range(5))
def test_pickles_of_any_age(protocol: int) -> None:
    image = pixels(0, 4, 3072)
    content = {"data": image, "labels": [1, 2, 3, 4], b"filenames": [b"a", b"b"], "batch_label": "x"}
    loaded = load_batch(pickle.dumps(content, protocol=protocol))
    assert np.array_equal(loaded["data"], image)
    assert loaded["labels"] == [1, 2, 3, 4]
    assert set(loaded) == {"data", "labels", "filenames", "batch_label"}


class Evil:
    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> Any:
        return self.call, self.arguments


def test_nothing_in_a_pickle_is_run(tmp_path: Path) -> None:
    target = tmp_path / "made"
    evil = {"data": Evil(os.mkdir, str(target)), "labels": []}
    assert isinstance(pickle.loads(pickle.dumps(evil)), dict)
    assert target.exists()  # so the pickle does act when it is let
    target.rmdir()
    with pytest.raises(ValueError, match=r"refused: the pickle asks for posix\.mkdir"):
        load_batch(pickle.dumps(evil))
    assert not target.exists()


@pytest.mark.parametrize(
    "content",
    [
        {"x": np.array([os.getcwd, 1], dtype=object)},
        {"x": np.zeros(3, np.float32)},
        {"x": np.asfortranarray(np.zeros((3, 4), np.uint8))},
        {"x": np.uint8(3)},
        {"x": Evil(eval, "1")},
        {"x": Evil(getattr, "", "__class__")},
        [1, 2],
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_other_objects_are_refused(content: Any, protocol: int) -> None:
    with pytest.raises(ValueError, match=r"refused|expected a dict"):
        load_batch(pickle.dumps(content, protocol=protocol))


def test_cut_and_changed_pickles_never_crash() -> None:
    content = pickle.dumps({"data": pixels(0, 2, 3), "labels": [1, 2]}, protocol=2)
    for length in range(len(content)):
        with pytest.raises(ValueError, match=r"pickle|refused|expected"):
            load_batch(content[:length])
    random = np.random.default_rng(0)
    for _ in range(3000):
        changed = bytearray(content)
        changed[random.integers(len(content))] = random.integers(256)
        try:
            load_batch(bytes(changed))
        except ValueError:
            continue


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"labels": [0]}, "10 images, but not as many labels"),
        ({"labels": [0] * 9 + [10]}, "something else than 0 to 9"),
        ({"labels": [True] * 10}, "something else than 0 to 9"),
        ({"data": pixels(0, 10, 3071)}, "3072 bytes a row"),
        ({"data": None}, "3072 bytes a row"),
        ({"data": pixels(0, 0, 3072), "labels": []}, "not as many labels"),
    ],
)
def test_batches_that_do_not_fit(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    raw = make_cifar_batches(tmp_path / "raw")
    batch = {"data": pixels(0, 10, 3072), "labels": list(range(10)), **change}
    (raw / "cifar-10-batches-py" / "data_batch_3").write_bytes(pickle.dumps(batch))
    with pytest.raises(DatasetError, match=told) as caught:
        prepare("cifar10", raw, tmp_path / "d")
    assert "data_batch_3" in str(caught.value)


def test_missing_batches_and_foreign_folders_are_named(tmp_path: Path) -> None:
    raw = make_cifar_batches(tmp_path / "raw")
    (raw / "cifar-10-batches-py" / "data_batch_4").unlink()
    with pytest.raises(DatasetError, match="data_batch_4 missing"):
        prepare("cifar10", raw, tmp_path / "d")
    folders = make_cifar_folders(tmp_path / "folders")
    (folders / "cifar10" / "train" / "zebra").mkdir()
    with pytest.raises(DatasetError, match=r"not those of CIFAR-10 \(zebra\)"):
        prepare("cifar10", folders, tmp_path / "d")
