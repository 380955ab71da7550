"""Splits and minibatches of environments."""

from __future__ import annotations

import numpy as np
import pytest

from fedhpc.data.environment_batches import EnvironmentBatches
from fedhpc.data.splits import split_environment, split_table
from fedhpc.data.table import SampleTable
from fedhpc.errors import ConfigError


def table(environment: np.ndarray, labels: np.ndarray) -> SampleTable:
    split = np.full(len(labels), 255, np.uint8)
    return SampleTable(labels, environment, split, {}, ("a", "b", "c"), ("x", "y", "z"))


@pytest.fixture
def mixed() -> SampleTable:
    rng = np.random.default_rng(0)
    return table(rng.integers(3, size=400), rng.integers(3, size=400))


def test_every_sample_lies_in_one_part(mixed: SampleTable) -> None:
    splits = split_table(mixed, 1, (2,), 0.2, 0.5)
    everything = np.concatenate([part for s in splits for part in (s.inside, s.outside, s.unlabeled)])
    assert sorted(everything) == list(range(400))
    for e, s in enumerate(splits):
        own = np.concatenate([s.inside, s.outside, s.unlabeled])
        assert (mixed.environment[own] == e).all()
        assert len(s.outside) == int(len(own) * 0.2)
        assert bool(len(s.unlabeled)) == (e == 2)


def test_test_environments_do_not_change_the_split(mixed: SampleTable) -> None:
    first, second = split_table(mixed, 4, (0,)), split_table(mixed, 4, (1, 2))
    for a, b in zip(first, second, strict=True):
        assert np.array_equal(a.inside, b.inside)
        assert np.array_equal(a.outside, b.outside)
    assert not np.array_equal(first[0].inside, split_table(mixed, 5, (0,))[0].inside)


def test_a_stratified_split_keeps_proportions() -> None:
    labels = np.repeat([0, 1, 2], [100, 50, 5])
    s = split_environment(155, 0, 0, 0.2, 0.25, labels)
    assert np.bincount(labels[s.outside]).tolist() == [20, 10, 1]
    assert np.bincount(labels[s.unlabeled]).tolist() == [20, 10, 1]
    assert sorted(np.concatenate([s.inside, s.outside, s.unlabeled])) == list(range(155))
    singles = split_environment(10, 0, 0, 0.2, labels=np.arange(10))
    assert len(singles.outside) == 2


@pytest.mark.parametrize(("fractions", "key"), [((1.0, 0.0), "holdout"), ((-0.1, 0.0), "holdout"), ((0.2, 1.5), "uda")])
def test_impossible_fractions(fractions: tuple[float, float], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        split_environment(10, 0, 0, *fractions)


def test_unknown_and_empty_environments(mixed: SampleTable) -> None:
    with pytest.raises(ConfigError, match="3 is no environment"):
        split_table(mixed, 0, (3,))
    with pytest.raises(ConfigError, match="environment y has no samples"):
        split_table(table(np.zeros(4, int), np.zeros(4, int)), 0)


def test_minibatches_are_drawn_with_replacement_from_named_streams() -> None:
    labels = np.zeros(20, int)
    plan = EnvironmentBatches(3, 64)
    positions = plan.positions(1, 7, labels)
    assert positions.shape == (64,)
    assert positions.min() >= 0
    assert positions.max() < 20
    assert np.array_equal(EnvironmentBatches(3, 64).positions(1, 7, labels), positions)
    for other in (plan.positions(2, 7, labels), plan.positions(1, 8, labels)):
        assert not np.array_equal(other, positions)
    counts = np.bincount(np.concatenate([plan.positions(0, s, labels) for s in range(500)]), minlength=20)
    assert (np.abs(counts / 1600 - 1) < 0.12).all()


def test_balanced_minibatches_draw_classes_equally_often() -> None:
    labels = np.array([2, 0, 0, 5, 0, 0, 2, 0])  # class 1, 3 and 4 are absent
    plan = EnvironmentBatches(0, 50, balanced=True)
    drawn = np.concatenate([plan.positions(0, s, labels) for s in range(400)])
    shares = np.bincount(labels[drawn]) / len(drawn)
    np.testing.assert_allclose(shares[[0, 2, 5]], 1 / 3, atol=0.015)
    within = np.bincount(drawn, minlength=8)[labels == 0]
    assert within.min() > 0.85 * within.mean()


def test_a_split_that_the_dataset_brings_along() -> None:
    environment, labels = np.repeat([0, 1, 2], 4), np.zeros(12, int)
    marked = table(environment, labels)
    marked.split[:] = [0, 0, 1, 2, 0, 0, 0, 2, 0, 1, 1, 255]
    splits = split_table(marked, 5, (1,), stored=True)
    assert [list(s.inside) for s in splits] == [[0, 1], [4, 5, 6], [8]]
    assert [list(s.outside) for s in splits] == [[2], [7], [9, 10]], "test samples only where none validate"
    with pytest.raises(ConfigError, match="marks 0 samples of environment x as train"):
        split_table(table(environment, labels), 5, (1,), stored=True)


def test_nothing_to_draw_from() -> None:
    with pytest.raises(ConfigError, match="no training samples left"):
        EnvironmentBatches(0, 4).positions(1, 0, np.array([], int))
    with pytest.raises(ConfigError, match="batch_size"):
        EnvironmentBatches(0, 0)
