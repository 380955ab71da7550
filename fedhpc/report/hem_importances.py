"""A person's own use cases, levels and bands for HEM, from plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedhpc.errors import ConfigError, nearest
from fedhpc.report._hem_index import BANDS, COMPONENTS, LEVELS, USE_CASES, Band, Importances


def parse_importances(tree: Mapping[str, Any], source: str) -> Importances:
    """Check the content of a file of importances: `levels`, `use_cases` and `bands`, each of which may be left out.

    Args:
        tree: plain values, as read from YAML.
        source: named in errors.

    Raises:
        ConfigError: a key, level, importance or band cannot be used.
    """
    try:
        return _parse(tree)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def _parse(tree: Mapping[str, Any]) -> Importances:
    for key in tree:
        if key not in ("levels", "use_cases", "bands"):
            raise ConfigError(f"no key '{key}'{nearest(key, ['levels', 'use_cases', 'bands'])}")
    levels = {name: _number(value, f"levels.{name}") for name, value in _mapping(tree.get("levels", LEVELS), "levels")}
    use_cases = {
        case: {c: _level(value, levels, f"use_cases.{case}.{c}") for c, value in _mapping(row, f"use_cases.{case}")}
        for case, row in _mapping(tree.get("use_cases") or _paper_in_words(), "use_cases")
    }
    bands = tuple(_band(name, value) for name, value in _mapping(tree["bands"], "bands")) if "bands" in tree else BANDS
    return Importances(use_cases, bands)


def _paper_in_words() -> dict[str, dict[str, str]]:
    """The paper's use cases by level, so that own levels apply to them."""
    words = {number: word for word, number in LEVELS.items()}
    return {case: {c: words[weights[c]] for c in COMPONENTS} for case, weights in USE_CASES.items()}


def _mapping(given: Any, at: str) -> list[tuple[str, Any]]:
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(f"{at} must be a mapping with at least one key, got {given!r:.40}")
    return [(str(key), value) for key, value in given.items()]


def _number(given: Any, at: str) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise ConfigError(f"{at} must be a number, got {given!r:.40}")
    return float(given)


def _level(given: Any, levels: Mapping[str, float], at: str) -> float:
    if not isinstance(given, str):
        return _number(given, at)
    if given not in levels:
        raise ConfigError(f"{at}: no level '{given}'{nearest(given, list(levels))}; there are: {', '.join(levels)}")
    return levels[given]


def _band(name: str, given: Any) -> Band:
    text = str(given).strip()
    sign = next((s for s in (">=", ">") if text.startswith(s)), "")
    try:
        return Band(name, float(text.removeprefix(sign)), inclusive=sign != ">")
    except ValueError:
        raise ConfigError(f"bands.{name} must be a lower border such as 0.7 or '> 0.8', got {given!r:.40}") from None
