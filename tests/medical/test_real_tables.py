"""The scenarios on HAM10000's real table: nothing twice, no lesion divided, everything accounted for."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from fedhpc import registry
from fedhpc.data._tables import read_table
from fedhpc.data.sources.base import RawDataset, ScanOptions
from fedhpc.data.table import SampleTable
from fedhpc.data.timeline import PARTS
from fedhpc.errors import ConfigError
from fedhpc.medical.config import SCENARIOS


def table_of(dataset: RawDataset) -> SampleTable:
    """The table that a prepared dataset would have."""
    items = dataset.items
    units = {unit: code for code, unit in enumerate(dict.fromkeys(i.attributes["unit"] for i in items))}
    sexes = {"M": 0, "F": 1}
    return SampleTable(
        np.array([i.label for i in items]),
        np.array([i.environment for i in items]),
        np.array([i.split for i in items], dtype=np.uint8),
        {
            "age": np.array([i.attributes["age"] for i in items], dtype=np.float32),
            "sex": np.array([sexes.get(str(i.attributes["sex"]), -1) for i in items], dtype=np.int32),
            "unit": np.array([units[i.attributes["unit"]] for i in items], dtype=np.int32),
        },
        tuple(dataset.classes),
        tuple(dataset.environments),
    )


@pytest.fixture(scope="module")
def ham(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SampleTable:
    shared: Path = request.getfixturevalue("shared_data")
    folder = tmp_path_factory.mktemp("ham")
    shutil.copy(shared / "skin" / "HAM10000_metadata", folder)
    for row in read_table((folder / "HAM10000_metadata").read_bytes(), "table").rows:
        (folder / f"{row.cells[1]}.jpg").touch()  # a scan opens no image
    return table_of(registry.load("fedhpc.data.sources", "ham10000").SOURCE.scan(folder, ScanOptions()))


@pytest.mark.parametrize("clients", [3, 5, 10, 50])
@pytest.mark.parametrize(
    ("groups", "edges"),
    [
        (("age",), ()),
        (("age",), (40.0, 60.0)),
        (("age",), (30.0, 45.0, 60.0, 75.0)),
        (("age", "sex"), ()),
        (("sex",), ()),
    ],
    ids=["2", "3", "5", "age x sex", "sex"],
)
def test_laws_on_ham10000(ham: SampleTable, clients: int, groups: tuple[str, ...], edges: tuple[float, ...]) -> None:
    scenario = registry.load(SCENARIOS, "localized").SCENARIO(clients=clients, groups=groups, edges=edges)
    timeline = scenario.timeline(ham, 13)
    assert timeline.num_clients == clients
    assert len(timeline.group_names) == {(): 2}.get(edges, len(edges) + 1) * (2 if len(groups) == 2 else 1)
    assert set(timeline.duplicates().values()) == {0}
    assert timeline.shared_units(ham.attributes["unit"]) == 0
    inside = sum(len(rows) for part in PARTS for client in getattr(timeline, part) for rows in client)
    assert inside + len(timeline.holdout) + sum(timeline.unused.values()) == ham.num_samples


def test_more_clients_than_lesions_allow_fail_with_the_numbers(ham: SampleTable) -> None:
    scenario = registry.load(SCENARIOS, "localized").SCENARIO(clients=3000)
    with pytest.raises(ConfigError, match=r"client \d+ .* has \d+"):
        scenario.timeline(ham, 13)
