"""The digest of a dataset: it tells other data from the same data in another place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedhpc.data.fingerprint import fingerprint
from fedhpc.data.prepare import prepare
from fedhpc.data.stores import MemoryStore, Store, open_store
from fedhpc.data.writer import ShardWriter
from tests.raw_layouts import pixels

SHAPE, NUM = (4, 4, 1), 12
IMAGES = pixels(3, NUM, *SHAPE)


def write(
    out: Path, images: np.ndarray = IMAGES, classes: str = "ab", shift: int = 0, split: int = 255, sexes: str = "fm"
) -> Store:
    writer = ShardWriter(
        out, name="image_folder", classes=list(classes), environments=["e", "f"], shape=SHAPE, expected=NUM,
        attributes={"sex": tuple("fmx"), "age": None}, shard_bytes=5 * images[0].nbytes,
    )  # fmt: skip
    with writer:
        for i, image in enumerate(images):
            writer.add(
                image,
                label=(i + shift) % 2,
                environment=i % 2,
                split=split,
                path=f"{out.name}/{i}.png",
                attributes={"sex": sexes[i % 2], "age": None if i else 40.0},
            )
    return open_store("image_folder", out)


def test_the_same_data_elsewhere_have_the_same_digest(tmp_path: Path) -> None:
    assert fingerprint(write(tmp_path / "here")) == fingerprint(write(tmp_path / "there"))


@pytest.mark.parametrize(
    "change",
    [{"images": IMAGES[::-1]}, {"classes": "ac"}, {"shift": 1}, {"split": 0}, {"sexes": "fx"}],
    ids=lambda c: next(iter(c)),
)
def test_whatever_a_training_sees_changes_it(change: dict[str, object], tmp_path: Path) -> None:
    one, other = write(tmp_path / "one"), write(tmp_path / "other", **change)  # type: ignore[arg-type]
    assert fingerprint(one) != fingerprint(other)


def test_data_in_memory_have_one() -> None:
    digits = open_store("rotated_digits", None)
    blanked = MemoryStore(digits.manifest, digits.table, np.zeros((digits.num_samples, 8, 8, 1), np.uint8))
    assert fingerprint(digits) == fingerprint(open_store("rotated_digits", None))
    assert fingerprint(digits) != fingerprint(blanked)


def test_embedded_data_are_the_same_in_a_folder(tmp_path: Path) -> None:
    prepare("medical_digits", None, tmp_path / "out")
    assert fingerprint(open_store("medical_digits", tmp_path / "out")) == fingerprint(
        open_store("medical_digits", None)
    )
