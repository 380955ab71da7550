"""Awkward and broken files, as a manifest.csv says: `pytest tests/hostile --hostile DIR` takes any such folder."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest

from fedhpc.data._idx import read_images, read_labels
from fedhpc.data.prepare import prepare, verify
from fedhpc.data.schema import Manifest, shown
from fedhpc.data.shards import ShardStore
from fedhpc.errors import DatasetError
from tests.conftest import REPOSITORY
from tests.raw_layouts import make_cifar_batches, make_mnist, pixels, save_png

Row = dict[str, str]
SIDE = 48


def hostile_folder(config: pytest.Config) -> Path:
    chosen = config.getoption("--hostile", default=None)
    return Path(chosen) if chosen else REPOSITORY.parent / "shared" / "data" / "hostile"


def rows_of(folder: Path, group: str) -> list[Row]:
    if not (folder / "manifest.csv").is_file():
        return []
    with open(folder / "manifest.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["group"] == group]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for group in ("image", "container"):  # tables: test_tables.py
        if f"{group}_row" in metafunc.fixturenames:
            rows = rows_of(hostile_folder(metafunc.config), group)
            metafunc.parametrize(f"{group}_row", rows, ids=[ascii(row["path"])[1:-1][-60:] for row in rows])


@pytest.fixture
def hostile(request: pytest.FixtureRequest) -> Path:
    folder = hostile_folder(request.config)
    if not (folder / "manifest.csv").is_file():
        pytest.skip(f"no manifest.csv in {folder}")
    return folder


def present(folder: Path, row: Row) -> Path:
    path = folder / row["path"]
    if not path.is_file():
        pytest.skip("not on this disk (some systems and tools leave such names out)")
    return path


def beside_a_control(folder: Path, row: Row, tmp_path: Path) -> tuple[Path, str]:
    """A raw folder with the one file, where it lay, and one sound image in a class of its own."""
    source = present(folder, row)
    top, _, relative = row["path"].partition("/")
    target = tmp_path / top / relative
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    save_png(tmp_path / top / "zz-control" / "sound.png", pixels(0, SIDE, SIDE, 3))
    return tmp_path / top, relative


def check_pixels(image: np.ndarray, about: str) -> None:
    """What the description promises about the pixels of a loaded file."""
    height, width, _ = image.shape
    corner = image[: height // 2 - 2, : width // 2 - 2].reshape(-1, 3).astype(int)
    if "red top-left" in about or "reddish" in about:
        red, green, blue = np.median(corner, axis=0)
        assert red > green + 80
        assert red > blue + 80
    if "about 127" in about:
        assert 117 < image.mean() < 137
    if "0/255" in about:
        assert set(np.unique(image)) <= {0, 255}
        assert image.max() == 255


def test_image(image_row: Row, hostile: Path, tmp_path: Path) -> None:
    raw, relative = beside_a_control(hostile, image_row, tmp_path)
    expect, out = image_row["expect"], tmp_path / "out"
    if expect == "reject":
        with pytest.raises(DatasetError, match="1 bad file; no dataset was written") as caught:
            prepare("image_folder", raw, out, size=SIDE)
        assert shown(relative) in str(caught.value)
        assert not out.exists()
        manifest = prepare("image_folder", raw, out, size=SIDE, on_bad="skip")
        assert [entry.path for entry in manifest.skipped] == [relative]
        assert manifest.num_samples == 1
    elif expect == "ignore":
        manifest = prepare("image_folder", raw, out, size=SIDE)
        assert ShardStore.open(out).paths() == ["zz-control/sound.png"]
        assert not any(name.startswith((".", "__")) for name in manifest.classes)
    elif expect == "either":
        prepare("image_folder", raw, out, size=SIDE, on_bad="skip")  # read, left alone or refused by name: no crash
        manifest = ShardStore.open(out).manifest
        told = [entry.path for entry in manifest.skipped] + ShardStore.open(out).paths()
        assert relative in told or "left alone" in "".join(manifest.notes)
    else:
        check_loaded(raw, relative, image_row, tmp_path)


def check_loaded(raw: Path, relative: str, row: Row, tmp_path: Path) -> None:
    shutil.rmtree(raw / "zz-control")
    prepare("image_folder", raw, tmp_path / "out")
    store = ShardStore.open(tmp_path / "out")
    assert store.paths() == [relative]
    assert store.manifest.classes == (relative.split("/")[0],)
    image = store.images(np.array([0]))[0]
    width, height = (int(n) for n in row["size"].split(" ")[0].split("x"))
    assert image.shape == (height, width, 3)
    check_pixels(image, row["what_a_good_loader_does"])
    resized = prepare("image_folder", raw, tmp_path / "resized", size=SIDE)
    assert resized.sample_shape == (SIDE, SIDE, 3)
    gray = prepare("image_folder", raw, tmp_path / "gray", channels=1)
    assert gray.channels == 1


def test_the_whole_image_folder_at_once(hostile: Path, tmp_path: Path) -> None:
    rows = [row for row in rows_of(hostile, "image") if (hostile / row["path"]).is_file()]
    for top in sorted({row["path"].split("/")[0] for row in rows}):
        concerned = {row["path"].partition("/")[2]: row for row in rows if row["path"].startswith(f"{top}/")}
        raw = tmp_path / top
        for path in concerned:
            (raw / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(hostile / top / path, raw / path)
        rejected = {path for path, row in concerned.items() if row["expect"] == "reject"}
        if rejected:
            with pytest.raises(DatasetError, match=f"{len(rejected)} bad file") as caught:
                prepare("image_folder", raw, tmp_path / "stopped", size=SIDE)
            assert all(shown(path) in str(caught.value) for path in sorted(rejected)[:20])
            assert not (tmp_path / "stopped").exists()
        manifest = prepare("image_folder", raw, tmp_path / f"out-{top}", size=SIDE, on_bad="skip")
        check_whole(tmp_path / f"out-{top}", manifest, concerned, rejected)


def check_whole(out: Path, manifest: Manifest, rows: dict[str, Row], rejected: set[str]) -> None:
    paths, notes = set(ShardStore.open(out).paths()), " ".join(manifest.notes)
    by_expect = {e: {p for p, row in rows.items() if row["expect"] == e} for e in ("load", "ignore", "report")}
    assert by_expect["load"] <= paths
    assert not by_expect["ignore"] & paths
    assert {entry.path for entry in manifest.skipped} == rejected
    assert all(shown(path) in notes for path in by_expect["report"])
    assert set(manifest.classes) == {path.split("/")[0] for path in by_expect["load"]}
    assert verify(out) == []


def test_container(container_row: Row, hostile: Path, tmp_path: Path) -> None:
    path, expect = present(hostile, container_row), container_row["expect"]
    if "-idx" in path.name:
        reader = read_images if "-idx3" in path.name else read_labels
        name, raw = "mnist", with_idx(path, tmp_path / "raw")
        if expect == "load":
            assert reader(path).dtype == np.uint8
            return
    elif path.suffix in (".npz", ".h5"):
        name, raw = "arrays", path
    elif "cifar" in path.name:
        name, raw = "cifar10", make_cifar_batches(tmp_path / "raw")
        shutil.copyfile(path, raw / "cifar-10-batches-py" / "data_batch_2")
    else:
        pytest.skip(f"no source reads {path.name}")
    out = tmp_path / "out"
    if expect == "load":
        prepare(name, raw, out)
        assert verify(out) == []
        return
    with pytest.raises(DatasetError) as caught:  # "report" too: refusing with the counts is one of the right answers
        prepare(name, raw, out)
    assert (path.name if name == "arrays" else raw.name) in str(caught.value)
    assert [p.name for p in tmp_path.iterdir() if p.name != "raw"] == []


def with_idx(path: Path, folder: Path) -> Path:
    """A sound MNIST folder in which one of the four files is the given one."""
    make_mnist(folder, num=3)
    kind = "images-idx3" if "-idx3" in path.name else "labels-idx1"
    for old in folder.glob(f"train-{kind}*"):
        old.unlink()
    shutil.copyfile(path, folder / f"train-{kind}-ubyte{path.suffix if path.suffix == '.gz' else ''}")
    return folder
