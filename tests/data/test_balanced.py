"""Batches over tasks: independent of ranks and restarts, balanced where asked, with memories of the promised size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhpc.data.balanced import ReplayPasses, TaskPasses, balanced_weights, remembered
from fedhpc.errors import ConfigError

LABELS = np.repeat([0, 1, 2], [70, 20, 7])


def keys(client: int, task: int) -> np.ndarray:
    return LABELS


PLAN = TaskPasses(seed=3, batch_size=10, steps=5, rounds_per_task=4)


def drawn(plan: TaskPasses | ReplayPasses, rounds: range, num: int = len(LABELS), client: int = 0) -> list[np.ndarray]:
    return [positions for r in rounds for (positions,) in plan.batches(client, r, num)]


def test_two_rounds_are_the_steps_of_one_long_one() -> None:
    """Passes go on from round to round: a run resumed in the middle of a task sees the same batches."""
    by_round = drawn(PLAN, range(4))
    at_once = drawn(replace(PLAN, steps=20, rounds_per_task=1), range(1))
    assert all(np.array_equal(a, b) for a, b in zip(by_round, at_once, strict=True))


def test_every_pass_holds_every_sample_once_in_a_new_order() -> None:
    batches = drawn(PLAN, range(4))
    first, second = np.concatenate(batches[:10]), np.concatenate(batches[10:20])
    for one in (first, second):
        assert np.array_equal(np.sort(one), np.arange(len(LABELS)))
    assert not np.array_equal(first, second)


def test_clients_and_tasks_differ_and_a_new_task_begins_a_new_pass() -> None:
    own = np.concatenate(drawn(PLAN, range(2)))
    assert not np.array_equal(own, np.concatenate(drawn(PLAN, range(2), client=1)))
    assert not np.array_equal(own, np.concatenate(drawn(PLAN, range(4, 6))))
    assert len(drawn(replace(PLAN, steps=3), range(4, 5))[0]) == 10  # 3 steps of 10 would not reach the end of a pass


def test_stored_order_is_the_same_in_every_pass() -> None:
    batches = drawn(replace(PLAN, order="stored"), range(4))
    assert np.concatenate(batches[:10]).tolist() == list(range(len(LABELS)))
    assert np.concatenate(batches[10:20]).tolist() == list(range(len(LABELS)))


def test_a_last_batch_of_one_joins_the_one_before() -> None:
    assert [len(b) for b in drawn(PLAN, range(1), num=21)] == [10, 11, 10, 11, 10]
    assert [len(b) for b in drawn(replace(PLAN, merge_single=False), range(1), num=21)] == [10, 10, 1, 10, 10]
    assert [len(b) for b in drawn(PLAN, range(1), num=1)] == [1] * 5


def test_balanced_draws_give_every_present_key_the_same_share() -> None:
    plan = replace(PLAN, steps=400, rounds_per_task=1, keys=keys)
    counts = np.bincount(LABELS[np.concatenate(drawn(plan, range(1)))])
    assert (abs(counts / counts.sum() - 1 / 3) < 0.03).all()
    weights = balanced_weights(np.array([-1, -1, 5, 5, 5, 5]))
    assert weights.tolist() == [0.5, 0.5, 0.25, 0.25, 0.25, 0.25]


def test_labels_of_another_length_are_refused() -> None:
    with pytest.raises(ConfigError, match="97 labels for 50 samples"):
        drawn(replace(PLAN, keys=keys), range(1), num=50)


def test_replay_keeps_the_size_of_the_batch_and_never_mixes_up_the_two_parts() -> None:
    plan = ReplayPasses(replace(PLAN, batch_size=6), 4, lambda client, task: 30 if task else 0, first_batch=10)
    assert {len(b) for b in drawn(plan, range(1))} == {10}
    for batch in drawn(plan, range(4, 8), num=97 + 30):
        own = batch[batch < 97]
        assert len(own) in (1, 6, 7)
        assert (batch[: len(own)] < 97).all()
        assert (batch[len(own) :] >= 97).all()
        assert (batch < 127).all()
    again = np.concatenate(drawn(plan, range(4, 8), num=127))
    assert len(np.unique(again[again >= 97])) == 30


def test_a_reservoir_holds_every_sample_with_the_same_probability() -> None:
    tasks = [np.arange(0, 60), np.arange(60, 100)]
    labels = np.zeros(100, int)
    hits = np.zeros(100)
    for seed in range(400):
        kept = remembered(tasks, 20, "reservoir", labels, seed, client=0)
        assert len(np.unique(kept)) == 20
        hits[kept] += 1
    assert abs(hits[:60].mean() - 80) < 4
    assert abs(hits[60:].mean() - 80) < 4
    assert hits.std() < 16


def test_a_ring_holds_the_latest_of_each_class() -> None:
    labels = np.array([0, 1] * 50)
    kept = remembered([np.arange(100)], 7, "ring", labels, 0, 0)
    assert sorted(kept.tolist()) == [92, 94, 95, 96, 97, 98, 99]


def test_memory_without_capacity_keeps_all_and_is_empty_at_first() -> None:
    assert remembered([np.arange(5), np.arange(7, 9)], None, "reservoir", np.zeros(9), 0, 0).tolist() == [
        0,
        1,
        2,
        3,
        4,
        7,
        8,
    ]
    assert len(remembered([], 5, "ring", np.zeros(9), 0, 0)) == 0


@pytest.mark.parametrize("field", ["batch_size", "steps", "rounds_per_task"])
def test_numbers_below_one_are_refused(field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        replace(PLAN, **{field: 0})


def test_a_client_without_samples_is_named() -> None:
    with pytest.raises(ConfigError, match="client 2 has no training samples in task 2"):
        list(PLAN.batches(2, 4, 0))
