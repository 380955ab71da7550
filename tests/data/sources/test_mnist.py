from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from fedhpc.data._idx import read_images, read_labels
from fedhpc.data.prepare import prepare, verify
from fedhpc.data.shards import ShardStore
from fedhpc.errors import DatasetError
from tests.raw_layouts import make_mnist, pixels, write_idx


def test_all_of_mnist_reads_as_gzip_and_numpy_do(shared_data: Path, tmp_path: Path) -> None:
    raw = shared_data / "mnist"
    manifest = prepare("mnist", raw, tmp_path / "d", shard_bytes=20 << 20)
    assert (manifest.num_samples, len(manifest.shards), manifest.sample_shape) == (70000, 3, (28, 28, 1))
    content = [gzip.decompress((raw / f"{stem}-images-idx3-ubyte.gz").read_bytes()) for stem in ("train", "t10k")]
    images = np.concatenate([np.frombuffer(c, np.uint8, offset=16).reshape(-1, 28, 28, 1) for c in content])
    content = [gzip.decompress((raw / f"{stem}-labels-idx1-ubyte.gz").read_bytes()) for stem in ("train", "t10k")]
    labels = np.concatenate([np.frombuffer(c, np.uint8, offset=8) for c in content])
    store = ShardStore.open(tmp_path / "d")
    order = np.random.default_rng(0).permutation(70000)
    assert np.array_equal(store.images(order), images[order])
    assert np.array_equal(store.table.labels, labels)
    assert store.table.split.tolist() == [0] * 60000 + [2] * 10000
    assert verify(tmp_path / "d") == []


def test_torchvision_layout_and_dotted_names(tmp_path: Path) -> None:
    nested = make_mnist(tmp_path / "raw" / "MNIST" / "raw", num=5)
    (nested / "train-labels-idx1-ubyte").rename(nested / "train-labels.idx1-ubyte")
    assert prepare("mnist", tmp_path / "raw", tmp_path / "d").num_samples == 10


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (make_mnist(tmp_path / "raw") / name).unlink()
    with pytest.raises(DatasetError, match=f"no {name.removesuffix('.gz')}"):
        prepare("mnist", tmp_path / "raw", tmp_path / "d")


def test_numbers_that_do_not_fit(tmp_path: Path) -> None:
    raw = make_mnist(tmp_path / "raw", num=5)
    write_idx(raw / "train-labels-idx1-ubyte", np.arange(4, dtype=np.uint8))
    with pytest.raises(DatasetError, match="5 images, but 4 labels"):
        prepare("mnist", raw, tmp_path / "d")
    write_idx(raw / "train-labels-idx1-ubyte", np.array([0, 1, 10, 3, 4], np.uint8))
    with pytest.raises(DatasetError, match="label 10, expected 0 to 9"):
        prepare("mnist", raw, tmp_path / "d")
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("end", ["", ".gz"])
def test_files_that_are_too_short_too_long_or_empty(tmp_path: Path, end: str) -> None:
    def written(content: bytes) -> Path:
        path = tmp_path / f"x{end}"
        path.write_bytes(gzip.compress(content) if end else content)
        return path

    write_idx(tmp_path / "sound", pixels(0, 4, 3, 2))
    sound = (tmp_path / "sound").read_bytes()
    assert np.array_equal(read_images(written(sound)), pixels(0, 4, 3, 2))
    for content in (b"", sound[:7], sound[:-1], sound + b"x", b"\0\0\x08\x01" + sound[4:]):
        with pytest.raises(DatasetError, match=f"x{end}: "):
            read_images(written(content))
    with pytest.raises(DatasetError, match="no samples"):
        read_labels(written(b"\0\0\x08\x01\0\0\0\0"))


def test_a_damaged_gzip_stream(tmp_path: Path) -> None:
    path = make_mnist(tmp_path / "raw") / "train-images-idx3-ubyte.gz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"train-images-idx3-ubyte\.gz: "):
        read_images(path)
