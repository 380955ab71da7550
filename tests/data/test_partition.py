"""The partition itself and the train/test split under it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fedhpc.data.partition import HOLDOUT, TEST, TRAIN, VALIDATION, Partition, assemble, cut, train_test
from fedhpc.data.schema import SPLITS, UNASSIGNED
from fedhpc.data.table import SampleTable
from fedhpc.errors import ConfigError


def table_of(labels: Sequence[int], environment: Sequence[int] | None = None, split: Sequence[int] | None = None):
    y = np.asarray(labels, dtype=np.int64)
    e = np.zeros_like(y) if environment is None else np.asarray(environment, dtype=np.int64)
    s = np.full(len(y), UNASSIGNED) if split is None else np.asarray(split)
    return SampleTable(
        y,
        e,
        s.astype(np.uint8),
        {},
        tuple(f"class {c}" for c in range(y.max() + 1)),
        tuple(f"place {i}" for i in range(e.max() + 1)),
    )


def test_split_codes_are_those_of_the_format():
    assert [SPLITS[code] for code in (TRAIN, VALIDATION, TEST, HOLDOUT)] == ["train", "validation", "test", "holdout"]


def test_stratified_split_keeps_shares_of_every_label_and_environment():
    rng = np.random.default_rng(0)
    labels, places = rng.integers(0, 3, 3000), rng.integers(0, 4, 3000)
    table = table_of(labels, places)
    train, test = train_test(table, 0.2, seed=5)
    assert sorted([*train, *test]) == list(range(3000))
    for label in range(3):
        of_label = labels[test] == label
        assert of_label.sum() == round(0.2 * (labels == label).sum())
        for place in range(4):
            here = (of_label & (places[test] == place)).sum()
            assert abs(here - 0.2 * ((labels == label) & (places == place)).sum()) <= 1


def test_split_depends_on_the_seed_only():
    table = table_of([0, 1] * 50)
    first, again, other = (train_test(table, 0.2, seed)[1].tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_small_classes_give_at_least_one_sample_to_both_parts():
    train, test = train_test(table_of([0] * 2 + [1] * 3 + [2]), 0.2, seed=0)
    assert len(test) == 2  # one of each of the first two classes; a single sample stays in train
    assert 5 in train


def test_stored_split_is_kept_and_the_rest_is_stratified():
    split = [TRAIN, VALIDATION, TEST, HOLDOUT] + [UNASSIGNED] * 10
    table = table_of([0] * 14, split=split)
    train, test = train_test(table, 0.2, seed=0)
    assert {0, 1} <= set(train)
    assert 2 in test
    assert 3 not in {*train, *test}
    assert (len(train), len(test)) == (2 + 8, 1 + 2)
    assert 1 not in train_test(table, 0.2, seed=0, validation="unused")[0]


@pytest.mark.parametrize("only", [TRAIN, TEST])
def test_a_stored_split_with_one_part_is_divided_again(only: int):
    train, test = train_test(table_of([0] * 10, split=[only] * 10), 0.3, seed=0)
    assert (len(train), len(test)) == (7, 3)


def test_cut_is_near_even_and_complete():
    for size, parts in ((10, 3), (7, 7), (3, 5), (36, 10), (0, 2)):
        pieces = cut(np.arange(size), parts)
        assert np.concatenate(pieces).tolist() == list(range(size))
        assert len(pieces) == parts
        assert max(map(len, pieces)) - min(map(len, pieces)) <= 1


def test_arrays_round_trip_also_with_empty_parts():
    a = Partition((np.array([1, 5]), np.zeros(0, np.int64), np.array([2])), (np.array([0]),) * 3, unused=4)
    arrays = a.to_arrays()
    assert all(x.dtype == np.int64 and x.ndim == 1 for x in arrays.values())
    b = Partition.from_arrays(arrays)
    assert [x.tolist() for x in b.train] == [[1, 5], [], [2]]
    assert [x.tolist() for x in b.test] == [[0], [0], [0]]
    assert b.unused == 4


def test_counts_name_classes_and_unused_samples():
    table = table_of([0, 0, 1, 1, 1, 2])
    partition = assemble(table, [np.array([2, 0])], [np.array([3, 4])])
    assert partition.unused == 2
    assert partition.train[0].tolist() == [0, 2]
    assert partition.counts(table) == [
        {"client": 0, "num_train": 2, "num_test": 2, "train_per_class": [1, 1, 0], "test_per_class": [0, 2, 0]}
    ]


def test_check_names_poor_clients_and_doubled_samples():
    table = table_of([0] * 8)
    with pytest.raises(ConfigError, match=r"1 of 2 clients lack .*client 1 \(2 train, 0 test\)"):
        assemble(table, [np.array([0]), np.array([1, 2])], [np.array([3]), np.zeros(0, np.int64)])
    with pytest.raises(ConfigError, match=r"used more than once, first \[3\]"):
        assemble(table, [np.array([0, 3])], [np.array([3])])
