from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from fedhpc.data.schema import BadFile
from fedhpc.data.shards import ShardStore
from fedhpc.data.writer import ShardWriter
from fedhpc.errors import DatasetError
from tests.raw_layouts import pixels

SHAPE = (4, 3, 2)
SLOW_WRITER = textwrap.dedent(
    """
    import sys, time, numpy as np
    from pathlib import Path
    from fedhpc.data.writer import ShardWriter
    with ShardWriter(Path(sys.argv[1]), name="t", classes=["a"], environments=["e"], shape=(4, 3, 2), expected=100,
                     shard_bytes=240) as writer:
        for i in range(25):
            writer.add(np.zeros((4, 3, 2), np.uint8), label=0)
        print("ready", flush=True)
        time.sleep(60)
    """
)


def writer_for(out: Path, expected: int = 10, **options: object) -> ShardWriter:
    common = {"name": "t", "classes": ["a", "b"], "environments": ["e", "f"], "shape": SHAPE, "expected": expected}
    return ShardWriter(out, **{**common, **options})  # type: ignore[arg-type]


def fill(writer: ShardWriter, num: int) -> np.ndarray:
    images = pixels(0, num, *SHAPE)
    for i, image in enumerate(images):
        writer.add(image, label=i % 2, environment=i // 2 % 2, split=i % 4, path=f"p/{i}\udcff\n.png")
    return images


@pytest.mark.parametrize("shard_bytes", [1, 24 * 3, 24 * 7, 1 << 20])
@pytest.mark.parametrize("num", [1, 7, 10])
def test_what_goes_in_comes_out(tmp_path: Path, shard_bytes: int, num: int) -> None:
    with writer_for(tmp_path / "d", shard_bytes=shard_bytes) as writer:  # fewer samples than expected: repacked
        images = fill(writer, num)
    store = ShardStore.open(tmp_path / "d")
    assert np.array_equal(store.images(np.arange(num)), images)
    assert store.table.labels.tolist() == [i % 2 for i in range(num)]
    assert store.table.environment.tolist() == [i // 2 % 2 for i in range(num)]
    assert store.table.split.tolist() == [i % 4 for i in range(num)]
    assert store.paths() == [f"p/{i}\udcff\n.png" for i in range(num)]
    assert store.verify() == []
    rows = max(1, shard_bytes // 24)
    assert len(store.manifest.shards) == -(-num // min(rows, 10))
    assert [p.name for p in tmp_path.iterdir()] == ["d"]


def test_attributes_are_codes_and_numbers_with_missing_values(tmp_path: Path) -> None:
    attributes = {"sex": ("F", "M"), "age": None}
    rows: list[dict[str, str | float | None]] = [{"sex": "M", "age": 61.5}, {"sex": None}, {"sex": "F", "age": None}]
    with writer_for(tmp_path / "d", attributes=attributes) as writer:
        for row in rows:
            writer.add(np.zeros(SHAPE, np.uint8), label=0, attributes=row)
    store = ShardStore.open(tmp_path / "d")
    assert store.table.attributes["sex"].tolist() == [1, -1, 0]
    assert np.array_equal(store.table.attributes["age"], np.float32([61.5, np.nan, np.nan]), equal_nan=True)
    assert store.manifest.attributes == {"sex": {"values": ["F", "M"]}, "age": {}}
    assert store.verify() == []


def test_skipped_files_are_counted_and_listed_up_to_a_bound(tmp_path: Path) -> None:
    bad = [BadFile(f"{i}.jpg", "empty file") for i in range(1500)]
    with writer_for(tmp_path / "d") as writer:
        fill(writer, 2)
        writer.describe(skipped=bad)
    manifest = ShardStore.open(tmp_path / "d").manifest
    assert manifest.num_skipped == 1500
    assert manifest.skipped == tuple(bad[:1000])


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with writer_for(tmp_path / "d") as writer:
            fill(writer, 3)
            raise KeyError("stop")

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_no_samples_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no samples"), writer_for(tmp_path / "d"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_wrong_samples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected uint8 \(4, 3, 2\)"), writer_for(tmp_path / "d") as writer:
        writer.add(np.zeros((4, 3, 1), np.uint8), label=0)
    with pytest.raises(ValueError, match="label 2"), writer_for(tmp_path / "d") as writer:
        writer.add(np.zeros(SHAPE, np.uint8), label=2)


def test_existing_folders_are_refused_and_untouched(tmp_path: Path) -> None:
    with writer_for(tmp_path / "d") as writer:
        fill(writer, 3)
    before = {p.name: p.read_bytes() for p in (tmp_path / "d").iterdir()}
    with pytest.raises(DatasetError, match="already holds a dataset"):
        writer_for(tmp_path / "d")
    assert {p.name: p.read_bytes() for p in (tmp_path / "d").iterdir()} == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(DatasetError, match="other files"):
        writer_for(tmp_path / "other")
    with pytest.raises(DatasetError, match="no folder"):
        writer_for(tmp_path / "other" / "thesis.txt")
    assert (tmp_path / "other" / "thesis.txt").read_text() == "mine"


def test_an_empty_folder_and_a_missing_parent_are_fine(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for out in (tmp_path / "d", tmp_path / "x" / "y" / ("n" * 250)):
        with writer_for(out) as writer:
            fill(writer, 3)
        assert ShardStore.open(out).num_samples == 3


def test_of_two_writers_of_one_folder_the_first_wins(tmp_path: Path) -> None:
    first, second = writer_for(tmp_path / "d"), writer_for(tmp_path / "d")
    with first:
        images = fill(first, 3)
    with pytest.raises(DatasetError, match="already holds a dataset"), second:
        fill(second, 5)
    assert np.array_equal(ShardStore.open(tmp_path / "d").images(np.arange(3)), images)
    assert [p.name for p in tmp_path.iterdir()] == ["d"]


def start_slow_writer(out: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", SLOW_WRITER, str(out)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_killed_writer_leaves_no_dataset_and_its_remains_are_cleared(tmp_path: Path) -> None:
    killed = start_slow_writer(tmp_path / "d")
    killed.send_signal(signal.SIGKILL)
    killed.wait(20)
    assert not (tmp_path / "d").exists()
    assert len(list(tmp_path.glob(".fedhpc-partial-*/shard-*.h5"))) >= 2
    with pytest.raises(DatasetError, match="fedhpc prepare"):
        ShardStore.open(tmp_path / "d")
    with writer_for(tmp_path / "d") as writer:
        fill(writer, 3)
    assert [p.name for p in tmp_path.iterdir()] == ["d"]


def test_remains_that_are_alive_foreign_or_of_another_folder_stay(tmp_path: Path) -> None:
    alive = start_slow_writer(tmp_path / "d")
    other = start_slow_writer(tmp_path / "e")
    other.send_signal(signal.SIGKILL)
    other.wait(20)
    unmarked = tmp_path / ".fedhpc-partial-000000000000-00000000"
    unmarked.mkdir()
    (unmarked / "shard-00000.h5").write_text("not ours")
    partial = sorted(p for p in tmp_path.iterdir() if p.is_dir())
    try:
        with writer_for(tmp_path / "d") as writer:
            fill(writer, 3)
        assert sorted(p for p in tmp_path.iterdir() if p.name != "d") == partial
    finally:
        alive.kill()
        alive.wait(20)


def test_a_strangers_file_in_the_remains_is_kept(tmp_path: Path) -> None:
    killed = start_slow_writer(tmp_path / "d")
    killed.kill()
    killed.wait(20)
    (partial,) = tmp_path.iterdir()
    (partial / "notes.txt").write_text("mine")
    with writer_for(tmp_path / "d") as writer:
        fill(writer, 3)
    assert [p.name for p in partial.iterdir()] == ["notes.txt"]


def test_an_interrupted_writer_cleans_up(tmp_path: Path) -> None:
    process = start_slow_writer(tmp_path / "d")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) != 0
    assert list(tmp_path.iterdir()) == []


def test_too_small_a_disk_is_found_before_writing(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"bytes of pixels to write, [\d,]+ free"):
        writer_for(tmp_path / "d", expected=10**15)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_takes_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match="file/d: can't be written"):
        writer_for(tmp_path / "file" / "d")


def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root writes into read-only folders")
    tmp_path.chmod(0o500)
    with pytest.raises(DatasetError, match="Permission denied"):
        writer_for(tmp_path / "d")


def test_a_write_that_fails_midway_leaves_nothing(tmp_path: Path) -> None:
    """A file size limit stands in for a disk that fills up: the same kind of error from the same call."""
    code = textwrap.dedent(
        """
        import resource, signal, sys, numpy as np
        from pathlib import Path
        from fedhpc.data.writer import ShardWriter
        from fedhpc.errors import DatasetError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (6 << 20, resource.RLIM_INFINITY))
        try:
            with ShardWriter(Path(sys.argv[1]), name="t", classes=["a"], environments=["e"], shape=(256, 256, 1),
                             expected=300) as writer:
                for i in range(300):
                    writer.add(np.full((256, 256, 1), i % 251, np.uint8), label=0)
        except DatasetError as error:
            print(error)
        """
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "d")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "writing failed" in done.stdout
    assert "nothing was left behind" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_memory_is_bounded_by_a_block_not_by_the_dataset(tmp_path: Path) -> None:
    code = textwrap.dedent(
        """
        import resource, sys, numpy as np
        from pathlib import Path
        from fedhpc.data.writer import ShardWriter
        image = np.zeros((512, 512, 3), np.uint8)
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        with ShardWriter(Path(sys.argv[1]), name="t", classes=["a"], environments=["e"], shape=image.shape,
                         expected=400) as writer:
            for i in range(20):
                writer.add(image, label=0)
            before = peak()
            for i in range(300):
                writer.add(image, label=0)
        print(peak() - before)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "d")], capture_output=True, text=True, timeout=60, check=True
    )
    assert int(done.stdout) < 60  # of 240 MB written
