"""What every partition keeps, whichever files lie in fedhpc/data/partitions: a new one is tested as it is."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from fedhpc import registry
from fedhpc.data.partition import Partition, Partitioner
from fedhpc.data.schema import UNASSIGNED
from fedhpc.data.table import SampleTable
from fedhpc.errors import ConfigError

PACKAGE = "fedhpc.data.partitions"
REQUIRED = {"clients": 6, "attribute": "site"}
"""Values for fields without a default; a new plug-in reuses these names or gives defaults."""


def make(kind: str) -> Partitioner:
    plugin = registry.load(PACKAGE, kind).PARTITION
    bare = [f.name for f in dataclasses.fields(plugin) if f.default is dataclasses.MISSING]
    return plugin(**{name: REQUIRED[name] for name in bare})


def make_table(num_samples: int = 1200) -> SampleTable:
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 10, num_samples)
    environment = rng.integers(0, 3, num_samples)
    site = rng.integers(0, 4, num_samples).astype(np.int32)
    split = np.full(num_samples, UNASSIGNED, np.uint8)
    names = tuple(f"class {c}" for c in range(10))
    return SampleTable(labels, environment, split, {"site": site}, names, ("a", "b", "c"))


def same(a: Partition, b: Partition) -> bool:
    left, right = a.to_arrays(), b.to_arrays()
    return all(np.array_equal(left[k], right[k]) for k in left)


@pytest.fixture(params=registry.names(PACKAGE))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def test_is_a_frozen_dataclass(kind: str):
    plugin = make(kind)
    field = dataclasses.fields(plugin)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(plugin, field, 3)


def test_uses_every_sample_once_at_most_and_counts_the_rest(kind: str):
    table = make_table()
    partition = make(kind).split(table, seed=0)
    used = np.concatenate([*partition.train, *partition.test])
    assert len(np.unique(used)) == len(used)
    assert used.min() >= 0
    assert used.max() < table.num_samples
    assert len(used) + partition.unused == table.num_samples


def test_every_client_trains_and_is_tested(kind: str):
    partition = make(kind).split(make_table(), seed=0)
    assert len(partition.train) == len(partition.test) == partition.num_clients >= 2
    for part in (*partition.train, *partition.test):
        assert part.dtype == np.int64
        assert len(part) > 0
        assert (np.diff(part) > 0).all()


def test_same_seed_same_clients_other_seed_others(kind: str):
    table = make_table()
    first = make(kind).split(table, seed=1)
    assert same(first, make(kind).split(table, seed=1))
    assert not same(first, make(kind).split(table, seed=2))


def test_survives_the_way_through_buffers(kind: str):
    partition = make(kind).split(make_table(), seed=0)
    assert same(partition, Partition.from_arrays(partition.to_arrays()))


def test_does_not_touch_the_table(kind: str):
    table = make_table()
    for array in (table.labels, table.environment, table.split, *table.attributes.values()):
        array.flags.writeable = False
    make(kind).split(table, seed=0)


def test_too_few_samples_fail_with_numbers(kind: str):
    with pytest.raises(ConfigError, match=r"partition.*\d"):
        make(kind).split(make_table(3), seed=0)


def test_needs_no_torch(kind: str):
    code = f"import sys, {PACKAGE}.{kind}, fedhpc.data.batches; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
