"""Weighted sums have the same bits in any order and any split into ranks, and say which vectors they cannot take."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from fedhpc.tensors.accumulator import add_weighted_, largest_entry, problem_with

GRID = 40


def contributions(n: int = 8, size: int = 501, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    noise = torch.Generator().manual_seed(n)
    return [(torch.randn(size, generator=noise, dtype=torch.float64) * scale).to(dtype) for _ in range(n)]


def total(vectors: list[Tensor], weights: list[float], order: list[int], grid: int | None = GRID) -> Tensor:
    result = torch.zeros(vectors[0].numel(), dtype=torch.float64)
    for i in order:
        add_weighted_(result, vectors[i], weights[i], grid)
    return result


WEIGHTS = [0.3, 0.2, 0.17, 0.13, 0.1, 0.05, 0.03, 0.02]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 400.0])
def test_any_order_gives_the_same_bits(scale: float, dtype: torch.dtype) -> None:
    vectors = contributions(scale=scale, dtype=dtype)
    expected = total(vectors, WEIGHTS, list(range(8)))
    shuffle = torch.Generator().manual_seed(0)
    for _ in range(20):
        assert torch.equal(total(vectors, WEIGHTS, torch.randperm(8, generator=shuffle).tolist()), expected)


def test_a_plain_sum_would_not() -> None:
    # Without this the test above could pass by luck.
    vectors = contributions()
    plain = [total(vectors, WEIGHTS, order, None) for order in ([*range(8)], [*range(7, -1, -1)])]
    assert not torch.equal(*plain)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_any_split_into_ranks_and_any_tree_gives_the_same_bits(ranks: int) -> None:
    vectors = contributions(scale=30.0)
    expected = total(vectors, WEIGHTS, list(range(8)))
    parts = [total(vectors, WEIGHTS, list(range(rank, 8, ranks))) for rank in range(ranks)]
    for order in itertools.islice(itertools.permutations(parts), 24):
        line = torch.zeros_like(expected)
        for part in order:
            line += part
        assert torch.equal(line, expected)
    while len(parts) > 1:  # pairs of pairs, as a reduction tree does it
        parts = [sum(parts[i : i + 2]) for i in range(0, len(parts), 2)]  # type: ignore[misc]
    assert torch.equal(parts[0], expected)


def test_the_sum_is_right_to_half_a_grid_step_per_term() -> None:
    vectors = contributions()
    terms = [[w * float(v[i]) for w, v in zip(WEIGHTS, vectors, strict=True)] for i in range(501)]
    exact = torch.tensor([math.fsum(t) for t in terms], dtype=torch.float64)
    away = (total(vectors, WEIGHTS, list(range(8))) - exact).abs().max()
    assert 0 < away < 8 * 2.0 ** -(GRID + 1)


def test_every_term_is_a_multiple_of_the_grid() -> None:
    sums = total(contributions(1), [0.123], [0])
    steps = sums * 2.0**GRID
    assert torch.equal(steps, steps.round())
    assert not torch.equal(sums * 2.0 ** (GRID - 1), (sums * 2.0 ** (GRID - 1)).round())


def test_blocks_join_without_a_seam() -> None:
    size = (1 << 16) * 2 + 7
    values = torch.arange(size, dtype=torch.float64) / size
    result = torch.zeros(size, dtype=torch.float64)
    add_weighted_(result, values, 0.5, GRID)
    assert (result - values / 2).abs().max() <= 2.0 ** -(GRID + 1)
    add_weighted_(result, values, -0.5, GRID)
    assert torch.equal(result, torch.zeros_like(result))


def test_zero_weight_and_empty_vectors_add_exact_zeros() -> None:
    result = torch.zeros(3, dtype=torch.float64)
    add_weighted_(result, torch.tensor([1.0, -2.0, 3.0]), 0.0, GRID)
    assert torch.equal(result, torch.zeros(3, dtype=torch.float64))
    add_weighted_(result[:0], torch.empty(0), 1.0, GRID)


def test_exact_sums_take_no_float32_totals() -> None:
    with pytest.raises(AssertionError, match="float64"):
        add_weighted_(torch.zeros(3), torch.ones(3), 1.0, GRID)


def test_without_a_grid_the_sum_is_plain() -> None:
    result = torch.zeros(3, dtype=torch.float32)
    add_weighted_(result, torch.ones(3, dtype=torch.float64), 0.25, None)
    assert torch.equal(result, torch.full((3,), 0.25))


@pytest.mark.parametrize("grid", [30, 40, 44])
def test_just_inside_the_grid_any_order_holds(grid: int) -> None:
    bound = largest_entry(grid)
    assert bound == 2.0 ** (51 - grid)
    noise = torch.Generator().manual_seed(1)
    vectors = [(torch.rand(64, generator=noise, dtype=torch.float64) * 2 - 1) * bound * 0.999 for _ in range(8)]
    assert all(problem_with(v, bound) is None for v in vectors)
    expected = total(vectors, WEIGHTS, list(range(8)), grid)
    shuffle = torch.Generator().manual_seed(0)
    for _ in range(30):
        assert torch.equal(total(vectors, WEIGHTS, torch.randperm(8, generator=shuffle).tolist(), grid), expected)


def test_eight_contributions_below_the_bound_must_be_judged_unweighted() -> None:
    # Each weighted contribution is below 2^11, and yet their sum leaves the exact range: bits depend on the order.
    bound = largest_entry(GRID)
    noise = torch.Generator().manual_seed(3)
    vectors = [bound * (6 + 2 * torch.rand(64, generator=noise, dtype=torch.float64)) for _ in range(8)]
    weights = [0.125] * 8
    assert all(float((v * w).max()) < bound for v, w in zip(vectors, weights, strict=True))
    sums = [total(vectors, weights, order) for order in ([*range(8)], [*range(7, -1, -1)], [3, 1, 7, 5, 0, 2, 6, 4])]
    assert not all(torch.equal(sums[0], s) for s in sums[1:])
    assert all("entry of magnitude" in str(problem_with(v, bound)) for v in vectors)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([], None),
        ([0.0, -2047.999], None),
        ([2048.0], "entry of magnitude 2.05e+03"),
        ([0.0, -2048.0], "entry of magnitude 2.05e+03"),
        ([1.0, float("nan"), 1.0], "not finite"),
        ([float("inf")], "not finite"),
        ([1.0, -float("inf")], "not finite"),
        ([float("nan"), 1e9], "not finite"),
    ],
)
def test_vectors_that_cannot_be_summed_are_told(values: list[float], problem: str | None) -> None:
    assert problem_with(torch.tensor(values, dtype=torch.float64), largest_entry(GRID)) == problem
    assert problem_with(torch.tensor(values, dtype=torch.float32), largest_entry(GRID)) == problem


def test_without_a_bound_only_finiteness_counts() -> None:
    assert problem_with(torch.tensor([1e30]), float("inf")) is None
    assert problem_with(torch.tensor([float("nan")]), float("inf")) == "not finite"
