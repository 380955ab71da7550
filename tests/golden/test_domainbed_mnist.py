"""ColoredMNIST and RotatedMNIST bit for bit as the original makes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from fedhpc import registry
from fedhpc.data._shifted_digits import colored, rotated
from fedhpc.data.prepare import prepare
from fedhpc.data.shards import ShardStore
from fedhpc.data.sources.base import RawDataset, ScanOptions
from tests.golden.domainbed_cases import Case, parametrize
from tests.raw_layouts import write_idx

SOURCES = {"ColoredMNIST": "colored_mnist", "RotatedMNIST": "rotated_mnist"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc)


@pytest.fixture(params=SOURCES)
def name(request: pytest.FixtureRequest, mnist_domains_case: Case) -> str:
    """Each dataset that a case has."""
    if request.param not in mnist_domains_case.facts:
        pytest.skip(f"the case has no {request.param}")
    return request.param


@dataclass
class RecordedDraws:
    arrays: dict[str, np.ndarray]
    name: str
    used: list[int] = field(default_factory=list)

    def permutation(self, n: int) -> np.ndarray:
        return self.arrays[f"{self.name}/permutation"]

    def uniform(self, n: int) -> np.ndarray:
        self.used.append(n)
        return self.arrays[f"{self.name}/uniform/{len(self.used) - 1}"]


def write_mnist(arrays: dict[str, np.ndarray], num_train: int, folder: Path) -> Path:
    folder.mkdir()
    for stem, rows in (("train", slice(0, num_train)), ("t10k", slice(num_train, None))):
        write_idx(folder / f"{stem}-images-idx3-ubyte", arrays["images"][rows])
        write_idx(folder / f"{stem}-labels-idx1-ubyte.gz", arrays["labels"][rows].astype(np.uint8))
    return folder


def assert_environments(dataset: RawDataset, arrays: dict[str, np.ndarray], name: str, sizes: list[int]) -> None:
    for environment, size in enumerate(sizes):
        items = [item for item in dataset.items if item.environment == environment]
        assert len(items) == size
        pixels = np.stack([dataset.decode(item) for item in items]).transpose(0, 3, 1, 2)
        assert np.array_equal(pixels, arrays[f"{name}/{environment}/x_uint8"])
        assert [item.label for item in items] == arrays[f"{name}/{environment}/y"].tolist()


def test_from_the_recorded_draws(mnist_domains_case: Case, name: str) -> None:
    arrays, facts = mnist_domains_case.arrays(), mnist_domains_case.facts[name]
    draws = RecordedDraws(arrays, name)
    make = colored if name == "ColoredMNIST" else rotated
    dataset = make(arrays["images"], arrays["labels"], draws)
    assert list(dataset.environments) == facts["environments"]
    assert len(dataset.classes) == facts["num_classes"]
    assert len(draws.used) == facts["n_uniform_draws"]
    assert_environments(dataset, arrays, name, facts["sizes"])


def test_from_the_seed_and_idx_files(mnist_domains_case: Case, name: str, tmp_path: Path) -> None:
    arrays, facts = mnist_domains_case.arrays(), mnist_domains_case.facts
    raw = write_mnist(arrays, facts["n_train"], tmp_path / "raw")
    source = registry.load("fedhpc.data.sources", SOURCES[name]).SOURCE
    dataset = source.scan(raw, ScanOptions(seed=facts["torch_seed"]))
    assert_environments(dataset, arrays, name, facts[name]["sizes"])


def test_prepared_folder_keeps_order_and_pixels(mnist_domains_case: Case, name: str, tmp_path: Path) -> None:
    """Splits are lists of positions, so the stored order within an environment must be the original's."""
    arrays, facts = mnist_domains_case.arrays(), mnist_domains_case.facts
    raw = write_mnist(arrays, facts["n_train"], tmp_path / "raw")
    prepare(SOURCES[name], raw, tmp_path / "out", seed=facts["torch_seed"])
    store = ShardStore.open(tmp_path / "out")
    shape = store.manifest.channels, store.manifest.height, store.manifest.width
    assert list(shape) == facts[name]["input_shape"]
    for environment in range(len(facts[name]["sizes"])):
        rows = np.flatnonzero(store.table.environment == environment)
        assert np.array_equal(store.images(rows).transpose(0, 3, 1, 2), arrays[f"{name}/{environment}/x_uint8"])
        assert np.array_equal(store.table.labels[rows], arrays[f"{name}/{environment}/y"])
