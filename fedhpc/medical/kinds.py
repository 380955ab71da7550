"""Kinds of clients by their demographics: how many of each, and how many samples of each group one of them gets.

Kinds are `balanced` (all groups alike), `left_skewed` and `right_skewed` (0.8 of the first or last group, in the order
of descending size), `left_missing` and `right_missing` (none of it, the others in proportion to their sizes), and
`spare` (an even share of what the others left). `skewed:g`, `missing:g` and `only:g` name any group g.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

import numpy as np

from fedhpc.errors import ConfigError

SPARE = "spare"
SKEWED = ("left_skewed", "right_skewed")
SKEW = 0.8
"""Share of the dominant group of a skewed client."""

_FIXED_KINDS = ("balanced", *SKEWED, "left_missing", "right_missing", SPARE)
_NAMED_GROUP = re.compile(r"(skewed|missing|only):(\d+)")


def drawn_kinds(num_clients: int, ratios: Mapping[str, float], rng: random.Random) -> list[str]:
    """Kinds of all clients, spare ones last: those with an explicit share first, the rest skewed to either side.

    A share p gives ⌊p·K⌋ clients, at least one; `spare` may give none. The rest is drawn one by one with weights
    1/(0.1 + n²), n = how often a side is there already: strongly, not strictly, alternating.

    Raises:
        ConfigError: no share for `spare`, or the shares ask for more clients than there are.
    """
    if SPARE not in ratios:
        raise ConfigError("scenario: the shares of the client kinds must include 'spare' (0 for none)")
    num_spare = int(ratios[SPARE] * num_clients)
    kinds: list[str] = []
    for kind, share in ratios.items():
        if kind != SPARE:
            kinds += [kind] * max(int(share * num_clients), 1)
    wanted = num_clients - num_spare - len(kinds)
    if wanted < 0:
        raise ConfigError(
            f"scenario: the shares {dict(ratios)} ask for {len(kinds) + num_spare} clients, there are {num_clients}"
        )
    for _ in range(wanted):
        weights = [1 / (0.1 + kinds.count(side) ** 2) for side in SKEWED]
        kinds.append(rng.choices(SKEWED, weights=weights, k=1)[0])
    return kinds + [SPARE] * num_spare


def check_kind(kind: str, num_groups: int | None = None) -> None:
    """Raise ConfigError unless it is a kind, and the group it names exists."""
    named = _NAMED_GROUP.fullmatch(kind)
    if kind not in _FIXED_KINDS and not named:
        known = ", ".join((*_FIXED_KINDS, "skewed:g", "missing:g", "only:g"))
        raise ConfigError(f"scenario.kinds: '{kind}' is no kind of client; there are {known}")
    if named and num_groups is not None and int(named[2]) >= num_groups:
        raise ConfigError(f"scenario.kinds: '{kind}' names group {named[2]}, groups are 0 to {num_groups - 1}")


def group_shares(kind: str, sizes: Sequence[int]) -> np.ndarray:
    """Shares float64 [G] of the groups in a client of this kind; `sizes` counts the samples of each group."""
    num = len(sizes)
    what, group = _resolved(kind, num)
    shares = np.full(num, 1.0 / num)
    if num > 1 and what == "skewed":
        shares = np.full(num, (1 - SKEW) / (num - 1))
        shares[group] = SKEW
    elif what == "missing":
        shares = np.asarray(sizes, dtype=np.float64).copy()
        shares[group] = 0.0
        shares = shares / max(shares.sum(), 1.0)
    elif what == "only":
        shares = np.eye(num)[group]
    return shares


def group_counts(kind: str, sizes: Sequence[int], samples_per_client: float) -> list[int]:
    """Samples of each group for a client of nominal size `samples_per_client`, as the original truncates them."""
    if kind in SKEWED:  # the original's products, in its order: 0.2/(G-1) is not (1-0.8)/(G-1) in floating point
        others = 0.2 / max(len(sizes) - 1, 1)
        shares = [others] * len(sizes)
        shares[0 if kind == SKEWED[0] else -1] = SKEW
        return [int(share * samples_per_client) for share in shares]
    return [int(share * samples_per_client) for share in group_shares(kind, sizes)]


def _resolved(kind: str, num_groups: int) -> tuple[str, int]:
    named = _NAMED_GROUP.fullmatch(kind)
    if named:
        return named[1], int(named[2])
    side, _, what = kind.partition("_")
    return (what, 0 if side == "left" else num_groups - 1) if what else (kind, 0)
