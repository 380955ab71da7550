"""What each kind of partition promises beyond the contract that all of them keep."""

from __future__ import annotations

import numpy as np
import pytest

from fedhpc.data.partition import TEST, TRAIN
from fedhpc.data.partitions.by_attribute import ByAttribute
from fedhpc.data.partitions.by_environment import ByEnvironment
from fedhpc.data.partitions.classes_per_client import ClassesPerClient
from fedhpc.data.partitions.dirichlet import Dirichlet
from fedhpc.data.partitions.iid import Iid
from fedhpc.data.schema import UNASSIGNED
from fedhpc.data.table import SampleTable
from fedhpc.errors import ConfigError


def classes(num: int) -> tuple[str, ...]:
    return tuple(f"class {c}" for c in range(num))


@pytest.fixture(scope="module")
def digits() -> SampleTable:
    from sklearn.datasets import load_digits

    labels = load_digits().target.astype(np.int64)
    n = len(labels)
    return SampleTable(labels, np.zeros(n, np.int64), np.full(n, UNASSIGNED, np.uint8), {}, classes(10), ("all",))


@pytest.fixture(scope="module")
def cifar() -> SampleTable:
    labels = np.tile(np.arange(10), 6000).astype(np.int64)
    split = np.where(np.arange(60000) < 50000, TRAIN, TEST).astype(np.uint8)
    return SampleTable(labels, np.zeros(60000, np.int64), split, {}, classes(10), ("all",))


def test_hem_study_gives_500_and_100_images_of_five_classes(cifar: SampleTable):
    for client, row in enumerate(ClassesPerClient(clients=100).split(cifar, seed=0).counts(cifar)):
        held = {(client + n) % 10 for n in range(5)}
        assert row["train_per_class"] == [100 if c in held else 0 for c in range(10)]
        assert row["test_per_class"] == [20 if c in held else 0 for c in range(10)]


def test_quickstart_uses_all_1797_digits(digits: SampleTable):
    partition = ClassesPerClient(clients=20, classes_per_client=5).split(digits, seed=0)
    assert partition.unused == 0
    for client, row in enumerate(partition.counts(digits)):
        held = sorted((client + n) % 10 for n in range(5))
        for part, low, high in (("train_per_class", 13, 15), ("test_per_class", 3, 4)):
            assert np.flatnonzero(row[part]).tolist() == held
            assert all(low <= row[part][c] <= high for c in held)


def test_classes_beyond_the_last_client_stay_unused(digits: SampleTable):
    partition = ClassesPerClient(clients=2, classes_per_client=3).split(digits, seed=0)
    assert partition.unused == (digits.labels >= 4).sum()


def test_class_rule_names_class_and_numbers_when_impossible(digits: SampleTable):
    with pytest.raises(ConfigError, match=r"class 'class 0' has 36 test samples for the 50 of 100 clients"):
        ClassesPerClient(clients=100).split(digits, seed=0)
    with pytest.raises(ConfigError, match=r"classes_per_client: 11 asked for, the dataset has 10"):
        ClassesPerClient(clients=4, classes_per_client=11).split(digits, seed=0)


def test_iid_sizes_differ_by_one_at_most(digits: SampleTable):
    partition = Iid(clients=7).split(digits, seed=0)
    for parts in (partition.train, partition.test):
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert partition.unused == 0
    with pytest.raises(ConfigError, match="400 clients cannot share 1438 train and 359 test"):
        Iid(clients=400).split(digits, seed=0)


@pytest.mark.parametrize(("clients", "alpha"), [(20, 1e-5), (100, 0.1), (100, 100.0), (140, 0.5)])
def test_dirichlet_feeds_every_client_and_wastes_nothing(digits: SampleTable, clients: int, alpha: float):
    partition = Dirichlet(clients=clients, alpha=alpha, min_samples=10).split(digits, seed=3)
    assert min(map(len, partition.train)) >= 10
    assert min(map(len, partition.test)) >= 1
    assert partition.unused == 0


def test_dirichlet_tests_clients_on_the_mixture_they_train_on(cifar: SampleTable):
    counts = Dirichlet(clients=20, alpha=0.5).split(cifar, seed=0).counts(cifar)
    for row in counts:
        # Test counts are a fifth of the train counts in every class, up to rounding of both.
        difference = np.array(row["train_per_class"]) / 5 - np.array(row["test_per_class"])
        assert np.abs(difference).max() <= 1.2


def test_dirichlet_alpha_sets_the_skew(cifar: SampleTable):
    def largest_share(alpha: float) -> float:
        rows = Dirichlet(clients=20, alpha=alpha).split(cifar, seed=0).counts(cifar)
        return float(np.mean([max(r["train_per_class"]) / r["num_train"] for r in rows]))

    assert largest_share(1000) < 0.12 < largest_share(1) < largest_share(0.05)


def test_dirichlet_reports_repairs_and_impossible_minimums(digits: SampleTable):
    assert "were filled up to 10 train samples" in Dirichlet(clients=20, alpha=0.01).split(digits, 0).notes[0]
    assert Dirichlet(clients=20, alpha=100).split(digits, 0).notes == ()
    with pytest.raises(ConfigError, match="need 2000 and 200; there are 1438 and 359"):
        Dirichlet(clients=200, min_samples=10).split(digits, 0)


@pytest.fixture
def sites() -> SampleTable:
    n = 240
    labels, place = np.arange(n) % 3, np.arange(n) // 80
    attributes = {
        "sex": np.where(np.arange(n) % 10 == 0, -1, np.arange(n) % 2).astype(np.int32),
        "age": np.where(np.arange(n) % 8 == 0, np.nan, np.arange(n) % 90).astype(np.float32),
        "type": np.where(np.arange(n) < 3, 1, 0).astype(np.int32),
    }
    unassigned = np.full(n, UNASSIGNED, np.uint8)
    return SampleTable(labels, place, unassigned, attributes, classes(3), ("photo", "sketch", "art"))


def test_environments_become_clients(sites: SampleTable):
    partition = ByEnvironment(clients_per_environment=2).split(sites, seed=0)
    assert partition.num_clients == 6
    for client, row in enumerate(partition.counts(sites)):
        own = np.concatenate([partition.train[client], partition.test[client]])
        assert set(sites.environment[own]) == {client // 2}
        assert max(row["train_per_class"]) - min(row["train_per_class"]) <= 2
    with pytest.raises(ConfigError, match="environment 'photo' has 15 test samples for 17 clients"):
        ByEnvironment(clients_per_environment=17).split(sites, seed=0)


def test_categories_become_clients_and_gaps_are_reported(sites: SampleTable):
    partition = ByAttribute("sex").split(sites, seed=0)
    assert partition.num_clients == 2
    assert partition.unused == 24
    assert partition.notes == ("24 of 240 samples without 'sex' are left out",)
    for client in range(2):
        assert set(sites.attributes["sex"][partition.train[client]]) == {client}
    grouped = ByAttribute("sex", missing="group").split(sites, seed=0)
    assert grouped.num_clients == 3
    assert set(sites.attributes["sex"][grouped.test[2]]) == {-1}
    with pytest.raises(ConfigError, match="24 of 240 samples have no 'sex'"):
        ByAttribute("sex", missing="refuse").split(sites, seed=0)


def test_numbers_need_edges(sites: SampleTable):
    partition = ByAttribute("age", edges=(30, 60)).split(sites, seed=0)
    ages = [sites.attributes["age"][train] for train in partition.train]
    assert max(ages[0]) < 30 <= min(ages[1])
    assert max(ages[1]) < 60 <= min(ages[2])
    with pytest.raises(ConfigError, match="edges is needed"):
        ByAttribute("age").split(sites, seed=0)
    with pytest.raises(ConfigError, match="edges is for numbers"):
        ByAttribute("sex", edges=(1,)).split(sites, seed=0)
    with pytest.raises(ConfigError, match="must ascend"):
        ByAttribute("age", edges=(60, 30))


def test_small_groups_are_named_or_left_out(sites: SampleTable):
    with pytest.raises(ConfigError, match="group 1 of attribute 'type' has 0 test samples"):
        ByAttribute("type").split(sites, seed=0)
    with pytest.raises(ConfigError, match="no group of attribute 'type' is left; group 0 of 'type' left out: "):
        ByAttribute("type", min_samples=10**6).split(sites, seed=0)
    partition = ByAttribute("type", min_samples=10).split(sites, seed=0)
    assert partition.notes == ("group 1 of 'type' left out: 3 samples < 10",)
    with pytest.raises(ConfigError, match=r"no 'sez' \(did you mean 'sex'\?\)"):
        ByAttribute("sez").split(sites, seed=0)


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: Iid(clients=0), "partition.clients"),
        (lambda: Iid(clients=2, test_fraction=1.0), "partition.test_fraction"),
        (lambda: Iid(clients=2, test_fraction=float("nan")), "partition.test_fraction"),
        (lambda: Dirichlet(clients=2, alpha=0), "partition.alpha"),
        (lambda: Dirichlet(clients=2, alpha=float("inf")), "partition.alpha"),
        (lambda: Dirichlet(clients=2, min_samples=0), "partition.min_samples"),
        (lambda: ClassesPerClient(clients=2, classes_per_client=0), "partition.classes_per_client"),
        (lambda: ByEnvironment(clients_per_environment=0), "partition.clients_per_environment"),
        (lambda: ByAttribute("a", clients_per_value=0), "partition.clients_per_value"),
    ],
)
def test_numbers_out_of_range_name_their_key(make, key: str):
    with pytest.raises(ConfigError, match=key):
        make()
