"""Awkward things that neither git nor every file system can hold; each test makes its own."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import numpy as np
import pytest

from fedhpc.data.prepare import prepare
from fedhpc.data.schema import Manifest
from fedhpc.data.shards import ShardStore
from fedhpc.errors import DatasetError
from tests.raw_layouts import make_class_folders, pixels, save_png


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return make_class_folders(tmp_path / "raw")


def refused(raw: Path) -> str:
    with pytest.raises(DatasetError) as caught:
        prepare("image_folder", raw, raw.parent / "stopped")
    assert not (raw.parent / "stopped").exists()
    return str(caught.value)


def skipping(raw: Path) -> Manifest:
    return prepare("image_folder", raw, raw.parent / "out", on_bad="skip")


@pytest.mark.timeout(20)
def test_link_loop(raw: Path) -> None:
    (raw / "ant" / "loop").symlink_to(".")
    (raw / "ant" / "up").symlink_to("..")
    manifest = prepare("image_folder", raw, raw.parent / "out")
    assert manifest.num_samples == 6
    assert manifest.classes == ("ant", "bee")
    assert sum("link back" in note for note in manifest.notes) == 2


def test_link_to_a_file_that_is_no_image(raw: Path) -> None:
    (raw / "ant" / "link.jpg").symlink_to("/etc/hostname")
    assert "ant/link.jpg: not an image" in refused(raw)
    assert skipping(raw).num_samples == 6


def test_linked_class_folder_and_image_are_read(raw: Path, tmp_path: Path) -> None:
    save_png(tmp_path / "elsewhere" / "x.png", pixels(1, 6, 5, 3))
    (raw / "cat").symlink_to(tmp_path / "elsewhere")
    (raw / "ant" / "y.png").symlink_to(tmp_path / "elsewhere" / "x.png")
    manifest = prepare("image_folder", raw, tmp_path / "out")
    assert manifest.classes == ("ant", "bee", "cat")
    assert manifest.num_samples == 8


def test_dangling_link(raw: Path) -> None:
    (raw / "ant" / "x.jpg").symlink_to("nowhere.jpg")
    assert "ant/x.jpg: link to nothing" in refused(raw)
    assert [entry.path for entry in skipping(raw).skipped] == ["ant/x.jpg"]


@pytest.mark.timeout(20)
def test_pipe_and_socket_do_not_block(raw: Path) -> None:
    os.mkfifo(raw / "ant" / "pipe.jpg")
    here = os.getcwd()
    os.chdir(raw / "ant")  # socket names are short
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("s.jpg")
            message = refused(raw)
    finally:
        os.chdir(here)
    assert "ant/pipe.jpg: not a regular file" in message
    assert "ant/s.jpg: not a regular file" in message
    assert skipping(raw).num_samples == 6


@pytest.mark.timeout(20)
def test_a_file_that_becomes_a_pipe_after_the_listing(raw: Path) -> None:
    from fedhpc.data.sources.base import BadSampleError, ScanOptions
    from fedhpc.data.sources.image_folder import SOURCE

    dataset = SOURCE.scan(raw, ScanOptions())
    (raw / dataset.items[0].path).unlink()
    os.mkfifo(raw / dataset.items[0].path)
    with pytest.raises(BadSampleError, match="not a regular file"):
        dataset.decode(dataset.items[0])


def test_unreadable_file_and_folder(raw: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    (raw / "ant" / "0.png").chmod(0)
    (raw / "bee").chmod(0)
    try:
        message = refused(raw)
    finally:
        (raw / "bee").chmod(0o700)
    assert "ant/0.png: Permission denied" in message
    assert "bee: folder can't be read" in message


def test_folder_named_like_an_image(raw: Path) -> None:
    (raw / "ant" / "dir.jpg").mkdir()
    assert prepare("image_folder", raw, raw.parent / "out").num_samples == 6


def test_empty_class_folder_keeps_its_index(raw: Path) -> None:
    (raw / "ask").mkdir()
    manifest = prepare("image_folder", raw, raw.parent / "out")
    assert manifest.classes == ("ant", "ask", "bee")
    assert ShardStore.open(raw.parent / "out").table.labels.tolist() == [0, 0, 0, 2, 2, 2]
    assert any("without a sample" in note and "ask" in note for note in manifest.notes)


@pytest.mark.parametrize("name", ["a\nb.png", "\udcff.png", "\x1b[31m.png", " .png", "n" * 251 + ".png"])
def test_odd_names_load_and_are_shown_escaped(raw: Path, name: str) -> None:
    save_png(raw / "ant" / "tmp.png", pixels(5, 6, 5, 3))
    os.rename(raw / "ant" / "tmp.png", raw / "ant" / name)
    prepare("image_folder", raw, raw.parent / "out")
    store = ShardStore.open(raw.parent / "out")
    row = store.paths().index(f"ant/{name}")
    assert np.array_equal(store.images(np.array([row]))[0], pixels(5, 6, 5, 3))
    (raw / "ant" / name).write_bytes(b"")
    message = refused(raw)
    assert "empty file" in message
    assert message.count("\n") == 1
    assert "\x1b" not in message
    message.encode("utf-8")  # fit for any log


def test_class_folders_that_differ_only_in_case(raw: Path) -> None:
    save_png(raw / "Ant" / "0.png", pixels(9, 6, 5, 3))
    if len(os.listdir(raw)) < 3:
        pytest.skip("this file system does not tell them apart")
    manifest = prepare("image_folder", raw, raw.parent / "out")
    assert manifest.classes == ("Ant", "ant", "bee")
    assert any("differ only in letter case" in note and "Ant, ant" in note for note in manifest.notes)


def test_a_file_that_vanishes_or_shrinks_after_the_listing(raw: Path) -> None:
    def meddle(seen: int, total: int) -> None:
        if seen == 1:
            (raw / "bee" / "1.png").unlink(missing_ok=True)
            os.truncate(raw / "bee" / "2.png", 60)

    many = [save_png(raw / "ant" / f"more{i}.png", pixels(i, 6, 5, 3)) for i in range(300)]  # meddle before bee's turn
    with pytest.raises(DatasetError) as caught:
        prepare("image_folder", raw, raw.parent / "out", workers=1, progress=meddle)
    assert len(many) == 300
    assert "bee/1.png: No such file" in str(caught.value)
    assert "bee/2.png: " in str(caught.value)
    assert not (raw.parent / "out").exists()


def test_output_that_can_not_be_written(raw: Path) -> None:
    (raw.parent / "file").write_text("")
    with pytest.raises(DatasetError, match="file/out: can't be written"):
        prepare("image_folder", raw, raw.parent / "file" / "out")
    with pytest.raises(DatasetError, match="can't be written"):
        prepare("image_folder", raw, "/proc/fedhpc/out")


def test_only_bad_files(tmp_path: Path) -> None:
    (tmp_path / "raw" / "ant").mkdir(parents=True)
    for i in range(30):
        (tmp_path / "raw" / "ant" / f"{i:02d}.jpg").write_bytes(b"")
    with pytest.raises(DatasetError) as caught:
        prepare("image_folder", tmp_path / "raw", tmp_path / "out")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("30 bad files")
    assert len(lines) == 22
    assert lines[-1].strip() == f"... and 10 more; all are in {tmp_path / 'out.bad.txt'}"
    listed = (tmp_path / "out.bad.txt").read_text().splitlines()
    assert [line.split(":")[0] for line in listed] == [f"ant/{i:02d}.jpg" for i in range(30)]
    with pytest.raises(DatasetError, match="no samples"):
        prepare("image_folder", tmp_path / "raw", tmp_path / "out", on_bad="skip")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.bad.txt", "raw"]
