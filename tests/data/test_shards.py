"""A dataset folder is read in any order, by any number of ranks, whatever the file system."""

from __future__ import annotations

import fcntl
import os
import pickle
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedhpc.data.shards import ShardStore
from fedhpc.data.stores import attach_store, open_store
from fedhpc.errors import DatasetError
from tests.conftest import REPOSITORY
from tests.data.shard_folder import IMAGES, NUM


@pytest.mark.parametrize("kind", ["shuffled", "duplicated", "one", "none", "reversed", "within_one_shard"])
def test_images_in_any_order_over_several_shards(made: Path, kind: str) -> None:
    random = np.random.default_rng(0)
    indices = {
        "shuffled": random.permutation(NUM),
        "duplicated": random.integers(0, NUM, 200),
        "one": np.array([NUM - 1]),
        "none": np.array([], dtype=np.int64),
        "reversed": np.arange(NUM)[::-1],
        "within_one_shard": np.array([9, 8, 9, 12]),
    }[kind]
    store = ShardStore.open(made)
    assert len(store.manifest.shards) == 8
    got = store.images(indices)
    assert got.dtype == np.uint8
    assert np.array_equal(got, IMAGES[indices])
    got[:] = 0  # a copy: the next read is not affected
    assert np.array_equal(store.images(indices), IMAGES[indices])


@pytest.mark.parametrize("bad", [[-1], [NUM], [0, 10**9]])
def test_indices_out_of_range(made: Path, bad: list[int]) -> None:
    with pytest.raises(IndexError, match=r"0\.\.49"):
        ShardStore.open(made).images(np.array(bad))


def test_indices_of_the_wrong_shape(made: Path) -> None:
    with pytest.raises(ValueError, match="dimensions"):
        ShardStore.open(made).images(np.zeros((2, 2), int))


def test_table(made: Path) -> None:
    table = ShardStore.open(made).table
    assert table.labels.dtype == table.environment.dtype == np.int64
    assert table.labels.tolist() == [i % 3 for i in range(NUM)]
    assert table.environment.tolist() == [i % 2 for i in range(NUM)]
    assert table.split.dtype == np.uint8
    assert set(table.split) == {255}
    assert table.attributes["sex"].tolist() == [i % 2 if i % 5 else -1 for i in range(NUM)]
    assert table.attributes["age"].tolist() == list(range(NUM))
    assert (table.class_names, table.environment_names) == (("a", "b", "c"), ("e", "f"))


def test_attach_gives_the_same_store_without_an_hdf5_file(made: Path, tmp_path: Path) -> None:
    description = pickle.dumps(ShardStore.open(made).describe())
    assert len(description) < 4000
    (tmp_path / "description").write_bytes(description)
    code = textwrap.dedent(
        """
        import hashlib, pickle, sys, numpy as np
        from fedhpc.data.shards import ShardStore
        store = ShardStore.attach(sys.argv[1], pickle.load(open(sys.argv[2], "rb")))
        pixels = store.images(np.arange(store.num_samples))
        assert "h5py" not in sys.modules and "torch" not in sys.modules
        columns = [store.table.labels, store.table.environment, store.table.split, *store.table.attributes.values()]
        print(*[hashlib.sha256(a.tobytes()).hexdigest() for a in (pixels, *columns)])
        """
    )
    command = [sys.executable, "-c", code, str(made), str(tmp_path / "description")]
    other = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    import hashlib

    table = ShardStore.open(made).table
    columns = [table.labels, table.environment, table.split, *table.attributes.values()]
    assert other.split() == [hashlib.sha256(a.tobytes()).hexdigest() for a in (IMAGES, *columns)]


def test_two_ranks_open_and_read_at_once(made: Path) -> None:
    code = textwrap.dedent(
        """
        import sys, numpy as np
        from fedhpc.data.shards import ShardStore
        print("here", flush=True); sys.stdin.readline()
        for _ in range(20):
            store = ShardStore.open(sys.argv[1]); total = int(store.images(np.arange(store.num_samples)).sum())
            assert not store.verify()
            store.close()
        print(total)
        """
    )
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(made)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for rank in ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "here\n"
    for rank in ranks:
        assert rank.stdin is not None
        rank.stdin.write("go\n")
        rank.stdin.flush()
    assert [int(rank.communicate(timeout=60)[0]) for rank in ranks] == [int(IMAGES.sum())] * 2


@pytest.fixture
def held_with_locks(made: Path) -> Iterator[Path]:
    """Another process has a shard open for reading, with HDF5's own (shared) lock."""
    code = (
        "import h5py, sys; f = h5py.File(sys.argv[1], 'r', locking=True); print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(made / "shard-00000.h5")]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    yield made
    holder.communicate(timeout=20)


def test_a_reader_in_another_process_is_no_obstacle(held_with_locks: Path) -> None:
    store = ShardStore.open(held_with_locks)
    assert np.array_equal(store.images(np.arange(NUM)), IMAGES)
    assert store.verify() == []


def test_file_locks_do_not_matter(made: Path) -> None:
    """An exclusive lock stands in for a file system that refuses locks: HDF5 fails the same way on both."""
    path = made / "shard-00000.h5"
    handle = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        code = "import h5py, sys; h5py.File(sys.argv[1], 'r', locking=True)"
        refused = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)
        assert "unable to lock file" in refused.stderr  # so the lock is one that HDF5 heeds
        store = ShardStore.open(made)
        assert np.array_equal(store.images(np.arange(NUM)), IMAGES)
    finally:
        os.close(handle)


def test_the_helper_is_the_only_place_that_opens_hdf5_in_the_data_room() -> None:
    opening = re.compile(r"h5py\.File\(")
    files = [p for p in (REPOSITORY / "fedhpc").rglob("*.py") if opening.search(p.read_text(encoding="utf-8"))]
    assert [p.relative_to(REPOSITORY).as_posix() for p in files] == ["fedhpc/data/hdf5.py"]


def test_embedded_data_need_no_folder_and_travel_whole() -> None:
    from sklearn.datasets import load_digits

    store = open_store("digits", None)
    other = attach_store(None, pickle.loads(pickle.dumps(store.describe())))
    expected = load_digits()
    rows = np.random.default_rng(0).permutation(1797)
    for each in (store, other):
        assert np.array_equal(each.images(rows)[..., 0], expected.images[rows])
        assert np.array_equal(each.table.labels, expected.target)
        assert each.manifest.pixel_max == 16


def test_open_store_checks_the_name(made: Path) -> None:
    with pytest.raises(DatasetError, match="holds the dataset 't', the config asks for 'mnist'"):
        open_store("mnist", made)
    with pytest.raises(DatasetError, match="not embedded"):
        open_store("mnist", None)
