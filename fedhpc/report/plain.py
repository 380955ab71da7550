"""Plain values out of nested mappings whose content nobody vouches for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def at(tree: Mapping[str, Any], *path: str) -> Any:
    """What lies at a path of keys; None where there is nothing."""
    found: Any = tree
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def text(tree: Mapping[str, Any], *path: str) -> str | None:
    """The string at a path; None where there is none."""
    found = at(tree, *path)
    return found if isinstance(found, str) else None


def number(tree: Mapping[str, Any], *path: str) -> float | None:
    """The finite number at a path; None where there is none."""
    found = at(tree, *path)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    return found if math.isfinite(found) else None


def integer(tree: Mapping[str, Any], *path: str) -> int | None:
    """The whole number at a path; None where there is none."""
    found = at(tree, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def first(preferred: Any, other: Any) -> Any:
    """The preferred value, or if it is None the other."""
    return other if preferred is None else preferred
