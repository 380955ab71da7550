from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from fedhpc.data._images import MAX_PIXELS, decode, fit
from fedhpc.data.prepare import prepare, verify
from fedhpc.data.shards import ShardStore
from fedhpc.data.sources.base import BadSampleError
from fedhpc.errors import ConfigError, DataRequestError, DatasetError
from tests.raw_layouts import make_class_folders, make_mnist, pixels, save_png


def encoded(image: np.ndarray, mode: str | None = None, kind: str = "PNG", **options: object) -> bytes:
    import io

    from PIL import Image

    picture = Image.fromarray(image)
    buffer = io.BytesIO()
    (picture.convert(mode) if mode else picture).save(buffer, kind, **options)
    return buffer.getvalue()


def test_progress_counts_every_sample_once(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    prepare("digits", None, tmp_path / "d", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i + 1, 1797) for i in range(1797)]


def test_threads_do_not_change_a_byte(tmp_path: Path) -> None:
    raw = make_class_folders(tmp_path / "raw")
    for i in range(200):
        save_png(raw / "ant" / f"more{i}.png", pixels(i, 9, 11, 3))
    for workers in (1, 4):
        prepare("image_folder", raw, tmp_path / str(workers), size=8, workers=workers)
    files = sorted(p.name for p in (tmp_path / "1").iterdir())
    assert files == ["manifest.json", "shard-00000.h5"]
    assert all((tmp_path / "1" / name).read_bytes() == (tmp_path / "4" / name).read_bytes() for name in files)


def test_differing_sizes_need_a_size(tmp_path: Path) -> None:
    raw = make_class_folders(tmp_path / "raw")
    save_png(raw / "bee" / "wide.png", pixels(0, 6, 50, 3))
    with pytest.raises(DatasetError, match=r"ant/0\.png is 6x5 \(height x width\), bee/wide\.png is 6x50; give --size"):
        prepare("image_folder", raw, tmp_path / "d")
    assert not (tmp_path / "d").exists()
    assert prepare("image_folder", raw, tmp_path / "d", size=(4, 7)).sample_shape == (4, 7, 3)


def test_existing_output_is_refused_before_any_decoding(tmp_path: Path) -> None:
    prepare("digits", None, tmp_path / "d")
    with pytest.raises(DatasetError, match="already holds a dataset"):
        prepare("image_folder", tmp_path / "absent", tmp_path / "d")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"on_bad": "maybe"}, "stop and skip"),
        ({"channels": 2}, "1 \\(gray\\) and 3"),
        ({"layout": "deep"}, "auto, class, environment"),
        ({"size": 0}, "1 to 4096"),
        ({"size": (10, 5000)}, "1 to 4096"),
        ({"shard_bytes": 0}, "shard_bytes"),
        ({"workers": -1}, "workers"),
    ],
)
def test_arguments_out_of_range(tmp_path: Path, options: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        prepare("digits", None, tmp_path / "d", **options)  # type: ignore[arg-type]


def test_unknown_source_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'mnist'"):
        prepare("minst", None, tmp_path / "d")


@pytest.mark.parametrize(("height", "width"), [(300, 200), (225, 411), (224, 224), (40, 40)])
def test_cropping_is_torchvisions_resize_and_centre_crop(height: int, width: int) -> None:
    from PIL import Image
    from torchvision.transforms import CenterCrop, Compose, Resize

    image = pixels(0, height, width, 3)
    expected = np.asarray(Compose([Resize(256), CenterCrop(224)])(Image.fromarray(image)))
    np.testing.assert_array_equal(fit(image, (224, 224), 3, "crop"), expected)
    assert fit(image, (30, 50), 1, "crop").shape == (30, 50, 1)


def test_a_source_says_how_images_come_to_a_size_and_the_user_may_say_otherwise(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "medical_table.yaml").write_text("table: t.csv\nlabel: y\n")
    (tmp_path / "raw" / "t.csv").write_text("Path,y\na.png,0\nb.png,1\n")
    for name in "ab":
        save_png(tmp_path / "raw" / f"{name}.png", pixels(ord(name), 20, 30, 3))
    made = {}
    for how in (None, "crop", "squeeze"):
        manifest = prepare("medical_table", tmp_path / "raw", tmp_path / str(how), size=8, fit=how)
        made[how] = ShardStore.open(tmp_path / str(how)).images(np.arange(2))
        assert any("--fit crop" in note for note in manifest.notes) is (how != "squeeze")
    assert np.array_equal(made[None], made["crop"])
    assert not np.array_equal(made["crop"], made["squeeze"])
    with pytest.raises(ConfigError, match="squeeze and crop"):
        prepare("medical_table", tmp_path / "raw", tmp_path / "other", fit="stretch")  # type: ignore[arg-type]


def test_channels_and_size_work_for_every_kind_of_source(tmp_path: Path) -> None:
    raw = make_mnist(tmp_path / "raw", num=10)
    prepare("mnist", raw, tmp_path / "d", size=14, channels=3)
    images = ShardStore.open(tmp_path / "d").images(np.arange(10))
    assert images.shape == (10, 14, 14, 3)
    assert np.array_equal(images[..., 0], images[..., 2])
    from PIL import Image

    expected = np.asarray(Image.fromarray(pixels(0, 10, 28, 28)[3]).resize((14, 14), Image.Resampling.BILINEAR))
    assert np.array_equal(images[3, ..., 1], expected)


def test_resizing_averages_instead_of_picking() -> None:
    """A fine checkerboard shrunk eightfold is gray; without antialiasing it is black or white."""
    board = np.indices((64, 64)).sum(0) % 2 * 255
    small = fit(board.astype(np.uint8)[..., None], (8, 8), None)
    assert small.min() > 100
    assert small.max() < 155


def test_duplicates_with_another_label_are_noted(tmp_path: Path) -> None:
    raw = make_class_folders(tmp_path / "raw")
    save_png(raw / "bee" / "same.png", pixels(0, 6, 5, 3))
    manifest = prepare("image_folder", raw, tmp_path / "d")
    assert any("1 of them under another label, e.g. ant/0.png and bee/same.png" in note for note in manifest.notes)


def test_interrupt_while_decoding_leaves_nothing(tmp_path: Path) -> None:
    raw = make_class_folders(tmp_path / "raw")

    def interrupt(seen: int, total: int) -> None:
        if seen == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare("image_folder", raw, tmp_path / "d", progress=interrupt)
    assert [p.name for p in tmp_path.iterdir()] == ["raw"]


def test_verify_says_what_is_wrong_with_a_folder_that_is_none(tmp_path: Path) -> None:
    for folder, problem in ((tmp_path / "x", "no such folder"), (tmp_path, "no manifest.json")):
        with pytest.raises(DataRequestError, match=problem):
            verify(folder)


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    raw = make_class_folders(tmp_path / "raw")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(raw, "data")
    whole = (tmp_path / "a.tar.gz").read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "no.tar.gz").write_bytes(b"<html>")
    for name in ("cut.tar.gz", "no.tar.gz"):
        with pytest.raises(DatasetError, match=rf"{name}: damaged archive"):
            prepare("image_folder", tmp_path / name, tmp_path / "d")


# decoding


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["RGB", "L", "1", "P", "RGBA", "LA", "I;16"])
def test_every_mode_gives_the_channels_asked_for(mode: str, channels: int) -> None:
    image = pixels(1, 7, 9, 3)
    if mode == "I;16":
        content = encoded(image[..., 0].astype(np.uint16) * 256 + 77)
        gray = image[..., 0]
    else:
        content = encoded(image, mode)
        gray = None
    got = decode(content, channels)
    assert got.shape == (7, 9, channels)
    if gray is not None:
        assert all(np.array_equal(got[..., c], gray) for c in range(channels))
    if mode in ("RGB", "RGBA") and channels == 3:
        assert np.array_equal(got, image)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(orientation: int) -> None:
    """The corner that a viewer shows top-left must come out top-left, whatever way the pixels are stored."""
    import io

    from PIL import Image, ImageOps

    upright = np.zeros((8, 12, 3), np.uint8)
    upright[:3, :4] = (250, 20, 20)
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, 1),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded(np.ascontiguousarray(stored), exif=exif)
    assert np.array_equal(decode(content, 3), upright)
    assert np.array_equal(np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(content)))), upright)


def test_too_many_pixels_are_refused_by_the_header() -> None:
    from PIL import Image

    side = int(MAX_PIXELS**0.5) + 1
    import io

    buffer = io.BytesIO()
    Image.new("1", (side, side)).save(buffer, "PNG")
    with pytest.raises(BadSampleError, match=f"{side}x{side} pixels"):
        decode(buffer.getvalue(), 3)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF"])
def test_any_cut_is_refused_or_complete(kind: str) -> None:
    """Cut at many places: an image either is refused, or only lost bytes that hold no pixels."""
    content = encoded(pixels(2, 24, 24, 3), kind=kind)
    whole = decode(content, 3)
    for length in range(0, len(content), max(1, len(content) // 60)):
        try:
            got = decode(content[:length], 3)
        except BadSampleError:
            continue
        assert np.array_equal(got, whole), length


def test_formats_that_can_run_programs_are_not_read() -> None:
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"
    with pytest.raises(BadSampleError, match="not an image of a known format"):
        decode(postscript, 3)


def test_preparing_imports_neither_torch_nor_mpi(tmp_path: Path) -> None:
    raw = make_class_folders(tmp_path / "raw")
    code = (
        "import sys; from fedhpc.data.prepare import prepare; prepare('image_folder', sys.argv[1], sys.argv[2]);"
        "print([m for m in ('torch', 'mpi4py', 'sklearn', 'matplotlib') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(raw), str(tmp_path / "d")]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip() == "[]"
