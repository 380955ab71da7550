"""Weighted sums whose bits do not depend on the order of the terms.

Each weighted contribution is rounded, in float64, to a multiple of 2^-grid_bits by adding and subtracting
1.5·2^(52 - grid_bits). Multiples of one grid add exactly in float64 as long as every partial sum stays below
2^(52 - grid_bits), so any order, any tree and any MPI library give the same bits. With weights that sum to at most one
and every unweighted entry below half that bound in magnitude, every partial sum is safe.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_BLOCK = 1 << 16
"""Elements per pass: a block's temporaries stay in the cache (11 M elements: 9 ms in blocks, 47 ms at once)."""


def grid_magic(grid_bits: int) -> float:
    """The constant whose addition and subtraction rounds a float64 to a multiple of 2^-grid_bits."""
    return 1.5 * 2.0 ** (52 - grid_bits)


def largest_entry(grid_bits: int) -> float:
    """Magnitude from which an unweighted entry is outside the grid (2^11 for 40 bits)."""
    return 2.0 ** (51 - grid_bits)


def add_weighted_(total: Tensor, values: Tensor, weight: float, grid_bits: int | None) -> None:
    """`total += weight · values`, each term on the grid.

    Args:
        total: contiguous [n] float64 (or float32 with `grid_bits=None`) host tensor, changed in place.
        values: contiguous [n] tensor of any floating dtype, on the host.
        weight: factor of this contribution, at least 0.
        grid_bits: the grid, or None for a plain sum that gives up the bits.
    """
    if grid_bits is None:
        total.add_(values.to(total.dtype), alpha=weight)
        return
    assert total.dtype == torch.float64, "exact sums are float64"
    magic = grid_magic(grid_bits)
    scratch = torch.empty(min(_BLOCK, total.numel()), dtype=torch.float64)
    for start in range(0, total.numel(), _BLOCK):
        stop = min(start + _BLOCK, total.numel())
        term = scratch[: stop - start]
        term.copy_(values[start:stop])
        term.mul_(weight).add_(magic).sub_(magic)
        total[start:stop].add_(term)


def problem_with(values: Tensor, bound: float) -> str | None:
    """Why a vector cannot be summed: not finite, or an entry of `bound` or more in magnitude; None if it can."""
    if values.numel() == 0:
        return None
    low, high = (float(v) for v in torch.aminmax(values.detach()))
    if not (math.isfinite(low) and math.isfinite(high)):
        return "not finite"
    size = max(-low, high)
    return f"entry of magnitude {size:.3g}" if size >= bound else None
