"""Minibatches of a client's local work."""

from __future__ import annotations

import numpy as np
import pytest

from fedhpc.data.batches import ShuffledBatches
from fedhpc.errors import ConfigError


def positions(plan: ShuffledBatches, client: int, round: int, n: int) -> list[np.ndarray]:
    steps = list(plan.batches(client, round, n))
    assert all(len(step) == 1 for step in steps)
    return [step[0] for step in steps]


@pytest.mark.parametrize(("n", "size", "epochs"), [(10, 4, 1), (10, 5, 3), (3, 50, 2), (1, 1, 2)])
def test_epochs_visit_every_sample_once_each(n: int, size: int, epochs: int):
    plan = ShuffledBatches(seed=0, batch_size=size, epochs=epochs)
    batches = positions(plan, 2, 5, n)
    per_epoch = -(-n // size)
    assert len(batches) == plan.num_steps(n) == epochs * per_epoch
    for e in range(epochs):
        epoch = batches[e * per_epoch : (e + 1) * per_epoch]
        assert sorted(np.concatenate(epoch)) == list(range(n))
        assert [len(b) for b in epoch[:-1]] == [size] * (per_epoch - 1)


@pytest.mark.parametrize("steps", [1, 3, 4, 7])
def test_steps_wrap_to_a_new_permutation(steps: int):
    plan = ShuffledBatches(seed=0, batch_size=4, steps=steps)
    batches = positions(plan, 0, 0, 10)
    assert len(batches) == plan.num_steps(10) == steps
    longer = positions(ShuffledBatches(seed=0, batch_size=4, epochs=3), 0, 0, 10)
    assert all(np.array_equal(a, b) for a, b in zip(batches, longer, strict=False))


def test_epochs_and_streams_differ():
    plan = ShuffledBatches(seed=0, batch_size=100, epochs=2)
    first, second = positions(plan, 0, 0, 100)
    assert first.tolist() != second.tolist()
    assert first.tolist() == positions(plan, 0, 0, 100)[0].tolist()
    others = [positions(plan, 1, 0, 100)[0], positions(plan, 0, 1, 100)[0]]
    others.append(positions(ShuffledBatches(seed=1, batch_size=100, epochs=1), 0, 0, 100)[0])
    assert all(first.tolist() != other.tolist() for other in others)


def test_impossible_plans_are_named():
    with pytest.raises(ConfigError, match="exactly one of"):
        ShuffledBatches(seed=0, batch_size=4)
    with pytest.raises(ConfigError, match="exactly one of"):
        ShuffledBatches(seed=0, batch_size=4, epochs=1, steps=1)
    with pytest.raises(ConfigError, match=r"local\.batch_size"):
        ShuffledBatches(seed=0, batch_size=0, epochs=1)
    with pytest.raises(ConfigError, match="client 7 has no train samples"):
        next(ShuffledBatches(seed=0, batch_size=4, steps=1).batches(7, 0, 0))
