"""MLDG: pairs of environments, inner steps on copies, and the corner in which nothing is trained."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.objectives.built import WithNorm, build, minibatches, network


def test_mldg_that_trains_nothing_leaves_the_weights() -> None:
    objective, solver = build("mldg", 2, "head", n_meta_test=2)
    before = objective.vector.weights.clone()
    assert float(solver.step(minibatches(2)).loss) == 0
    assert torch.equal(objective.vector.weights, before)


@pytest.mark.parametrize("profile", ["paper", "head"])
def test_mldg_works_on_copies(profile: str) -> None:
    """Running statistics and weights of the real network are not touched by the inner steps."""
    model = WithNorm().double()
    objective, _ = build("mldg", profile=profile, model=model, n_meta_test=1)
    weights, buffers = objective.vector.weights.clone(), objective.vector.buffers.clone()
    objective.backward(minibatches())
    assert torch.equal(objective.vector.weights, weights)
    assert torch.equal(objective.vector.buffers, buffers)
    assert objective.vector.grads.abs().sum() > 0


def test_mldg_skips_a_parameter_without_gradient() -> None:
    """The inner Adam must not move what got no gradient, not even by weight decay."""
    model = network()
    model.unused = nn.Parameter(torch.ones(2, dtype=torch.float64))
    objective, _ = build("mldg", model=model, weight_decay=0.1)
    objective.backward(minibatches())
    assert torch.equal(model.unused.detach(), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("num_train", range(6))
def test_pairs_of_the_split(num_train: int) -> None:
    from fedhpc.objectives.mldg import split_pairs

    for num_test in (1, 2, 4):
        order = list(range(num_train))
        pairs = split_pairs(order, num_test)
        held_out = order[max(0, num_train - num_test) :]
        assert [i for i, _ in pairs] == order[: max(0, num_train - num_test)]
        assert all(j in held_out for _, j in pairs)
