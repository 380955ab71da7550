"""Whole numbers that add up: near-equal cuts, largest remainders, and integer tables with given margins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhpc.errors import ConfigError

_SWEEPS = 500
_CLOSE = 1e-9


def near_equal(total: int, parts: int) -> np.ndarray:
    """Sizes int64 [parts] that differ by one at most, the larger ones first."""
    sizes = np.full(parts, total // parts, dtype=np.int64)
    sizes[: total % parts] += 1
    return sizes


def halving(total: int, parts: int) -> list[int]:
    """Sizes after always cutting the largest piece in two (the original's balanced clients; its defect B6)."""
    pieces = [total]
    while len(pieces) < parts:
        largest = pieces.pop(0)
        pieces = sorted([*pieces, largest - largest // 2, largest // 2], reverse=True)
    return pieces


def largest_remainder(sizes: Sequence[int], seats: int, at_least: int = 1) -> list[int]:
    """Share `seats` in proportion to `sizes` (Hamilton's rule); every entry gets `at_least`.

    Raises:
        ConfigError: fewer seats than the minimum needs.
    """
    if seats < at_least * len(sizes):
        raise ConfigError(
            f"scenario.clients is {seats}, and there are {len(sizes)} environments (datasets, sites); at least "
            f"{at_least * len(sizes)} clients are needed"
        )
    total = sum(sizes)
    quotas = [seats * size / total for size in sizes]
    shares = [max(int(quota), at_least) for quota in quotas]
    while sum(shares) < seats:
        shares[max(range(len(sizes)), key=lambda i: (quotas[i] - shares[i], -i))] += 1
    while sum(shares) > seats:
        able = [i for i in range(len(sizes)) if shares[i] > at_least]
        shares[max(able, key=lambda i: (shares[i] - quotas[i], i))] -= 1
    return shares


def whole_table(weights: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """An integer table close to `weights`, scaled to given sums of its rows and columns.

    The weights are scaled row by row and column by column until both sums fit (iterative proportional fitting), then
    rounded down; what is missing goes to the cells with the largest fractions. Cells of weight 0 stay 0. Where zeros
    make the sums impossible they are upper limits, and the rest is left over.

    Args:
        weights: [R, C], not negative.
        rows: int [R], sum of each row.
        columns: int [C], sum of each column.

    Returns:
        int64 [R, C], with row sums at most `rows` and column sums at most `columns`.
    """
    real = _scaled(np.asarray(weights, dtype=np.float64), np.asarray(rows), np.asarray(columns))
    table = np.floor(real + _CLOSE).astype(np.int64)
    left_rows, left_columns = rows - table.sum(1), columns - table.sum(0)
    order = np.argsort(-(real - table), axis=None, kind="stable")
    cells = [divmod(int(i), table.shape[1]) for i in order if np.asarray(weights).flat[i] > 0]
    for most in (1, None):  # one each by fraction, then whatever still fits
        for r, c in cells:
            more = min(left_rows[r], left_columns[c], most if most is not None else np.inf)
            if more > 0:
                table[r, c] += int(more)
                left_rows[r] -= int(more)
                left_columns[c] -= int(more)
    return table


def _scaled(real: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The fitted real table, whose sums are at most those given."""
    for _ in range(_SWEEPS):
        real = real * _factor(rows, real.sum(1))[:, None]
        real = real * _factor(columns, real.sum(0))[None, :]
        if np.allclose(real.sum(1), rows, rtol=0, atol=1e-6):
            break
    real = real * np.minimum(1.0, _factor(rows, real.sum(1)))[:, None]
    return real * np.minimum(1.0, _factor(columns, real.sum(0)))[None, :]


def _factor(wanted: np.ndarray, there: np.ndarray) -> np.ndarray:
    return np.divide(wanted, there, out=np.zeros(len(there), dtype=np.float64), where=there > 0)
