from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from fedhpc.data.prepare import prepare
from fedhpc.data.shards import ShardStore
from fedhpc.errors import DatasetError
from tests.raw_layouts import pixels


@pytest.mark.parametrize("end", ["npz", "h5"])
@pytest.mark.parametrize("shape", [(5, 4, 6), (5, 4, 6, 3), (5, 3, 4, 6), (5, 1, 4, 6)])
def test_any_order_of_axes(tmp_path: Path, end: str, shape: tuple[int, ...]) -> None:
    x, raw = pixels(0, *shape), tmp_path / f"raw.{end}"
    if end == "npz":
        np.savez_compressed(raw, x=x, y=np.arange(5))
    else:
        with h5py.File(raw, "w") as file:
            file["x"], file["y"] = x, np.arange(5)
    prepare("arrays", raw, tmp_path / "d")
    store = ShardStore.open(tmp_path / "d")
    expected = x[..., None] if x.ndim == 3 else x if shape[3] == 3 else x.transpose(0, 2, 3, 1)
    assert np.array_equal(store.images(np.arange(5)), expected)
    assert store.table.labels.tolist() == list(range(5))


@pytest.mark.parametrize(
    ("x", "y", "told"),
    [
        (pixels(0, 3, 4, 4), np.arange(2), "3 images in x, 2 in y"),
        (pixels(0, 3, 4, 4), np.array([0, 1, -1]), "'y' holds no labels, or some outside"),
        (pixels(0, 3, 4, 4), np.zeros(3), "'y' is float64"),
        (pixels(0, 3, 4, 4, 2), np.arange(3), "'x' has shape"),
        (np.zeros((3, 4, 4)), np.arange(3), "'x' is float64, expected uint8"),
        (np.full((3, 4, 4), np.nan), np.arange(3), "48 values that are NaN or infinite"),
        (pixels(0, 0, 4, 4), np.arange(0), "no samples"),
        (pixels(0, 3, 4, 4), np.array([None] * 3), "'y' can't be read"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, x: np.ndarray, y: np.ndarray, told: str) -> None:
    np.savez(tmp_path / "raw.npz", x=x, y=y)
    with pytest.raises(DatasetError, match=told):
        prepare("arrays", tmp_path / "raw.npz", tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_other_names_are_listed(tmp_path: Path) -> None:
    np.savez(tmp_path / "raw.npz", a=pixels(0, 3, 4, 4), b=np.arange(3))
    with pytest.raises(DatasetError, match="holds a, b"):
        prepare("arrays", tmp_path / "raw.npz", tmp_path / "d")
