"""INPUT.json of `fedhpc hem`, curves of several algorithms or component indices: read strictly, errors name the key."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedhpc.errors import ConfigError, nearest
from fedhpc.report._hem_index import COMPONENTS
from fedhpc.report._hem_measures import Accuracies, Curve
from fedhpc.report.hem import Comparison, IndexTable

_CURVE_KEYS = ("base", "eval_rounds", "client_accuracy", "t_train", "t_eval")
_SHAPES = '{"indices": {ALGORITHM: {...}}} or {"target": ..., "max_rounds": ..., "algorithms": {ALGORITHM: {...}}}'


def read_input(path: Path, target: float | None = None, cap: int | None = None) -> Comparison | IndexTable:
    """Read a file of curves or of indices; `target` and `cap` take the place of the file's own.

    Raises:
        ConfigError: the file cannot be read or used.
    """
    try:
        tree = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_unique)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ConfigError) else f"is not JSON: {error}"
        raise ConfigError(f"{path}: {reason}") from None
    try:
        return parse_input(tree, target, cap)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) < len(pairs):
        names = [name for name, _ in pairs]
        raise ConfigError(f"'{next(n for n in names if names.count(n) > 1)}' is there twice")
    return tree


def parse_input(tree: Any, target: float | None = None, cap: int | None = None) -> Comparison | IndexTable:
    """Check the content of such a file, given as plain values.

    Raises:
        ConfigError: it cannot be used.
    """
    if isinstance(tree, dict) and isinstance(tree.get("input"), dict):
        tree = tree["input"]  # a known-answer vector
    if isinstance(tree, dict) and "indices" in tree:
        return _index_table(tree["indices"])
    if not isinstance(tree, dict) or "algorithms" not in tree:
        raise ConfigError(f"holds neither indices nor curves; it needs {_SHAPES}")
    return _comparison(tree, target, cap)


def _index_table(tree: Any) -> IndexTable:
    table = {}
    for name, given in _named(tree, "indices").items():
        _only(given, COMPONENTS, f"indices.{name}")
        table[name] = {c: _share(given.get(c), f"indices.{name}.{c}") for c in COMPONENTS}
    return IndexTable(table)


def _comparison(tree: Mapping[str, Any], target: float | None, cap: int | None) -> Comparison:
    _only(tree, ("target", "max_rounds", "algorithms", "test_samples"), "the file")
    target = _number(tree.get("target"), "target") if target is None else target
    cap = _whole(tree.get("max_rounds"), "max_rounds") if cap is None else cap
    named = _named(tree["algorithms"], "algorithms")
    samples = tree.get("test_samples")
    curves = [_curve(name, given, cap) for name, given in named.items()]
    for curve in curves:
        if curve.base is not None and (curve.base not in named or curve.base == curve.algorithm):
            raise ConfigError(
                f"algorithms.{curve.algorithm}.base: there is no other algorithm '{curve.base}'"
                f"{nearest(curve.base, list(named))}"
            )
    return Comparison(target, cap, *_with_test_data(curves, samples))


def _curve(name: str, given: Mapping[str, Any], cap: int) -> Curve:
    at = f"algorithms.{name}"
    _only(given, _CURVE_KEYS, at)
    base = given.get("base")
    if base is not None and not isinstance(base, str):
        raise ConfigError(f"{at}.base must be an algorithm's name or null, got {base!r:.40}")
    rounds = [_whole(r, f"{at}.eval_rounds") for r in _list(given.get("eval_rounds"), f"{at}.eval_rounds")]
    if rounds != sorted(set(rounds)) or rounds[0] < 0:
        raise ConfigError(f"{at}.eval_rounds must rise and begin at 0 or later")
    if rounds[0] > cap:
        raise ConfigError(f"{at}.eval_rounds: the first evaluation (round {rounds[0]}) lies beyond max_rounds ({cap})")
    train = _seconds(given.get("t_train"), f"{at}.t_train", rounds, cap)
    evaluate = _seconds(given["t_eval"], f"{at}.t_eval", rounds, cap) if "t_eval" in given else (0.0,) * len(train)
    if len(train) != len(evaluate):
        raise ConfigError(f"{at}: t_train has {len(train)} rounds, t_eval {len(evaluate)}")
    accuracies = _accuracies(given.get("client_accuracy"), f"{at}.client_accuracy", rounds)
    return Curve(name, base, tuple(rounds), accuracies, train, evaluate)


def _seconds(given: Any, at: str, rounds: Sequence[int], cap: int) -> tuple[float, ...]:
    needed = max(r for r in rounds if r <= cap)
    values = tuple(_number(v, at) for v in (_list(given, at) if needed else given or ()))
    if any(v < 0 for v in values):
        raise ConfigError(f"{at}: seconds cannot be negative, got {min(values)}")
    if len(values) < needed:
        raise ConfigError(
            f"{at} has {len(values)} numbers, but round {needed} was evaluated; it needs the seconds of every round"
        )
    return values


def _accuracies(given: Any, at: str, rounds: Sequence[int]) -> tuple[Accuracies, ...]:
    rows = _list(given, at)
    if len(rows) != len(rounds):
        raise ConfigError(f"{at} has {len(rows)} evaluations, eval_rounds has {len(rounds)}")
    found = tuple(
        tuple(_share(a, f"{at} of round {r}, client {i}") for i, a in enumerate(_list(row, f"{at} of round {r}")))
        for r, row in zip(rounds, rows, strict=True)
    )
    if len({len(row) for row in found}) > 1:
        raise ConfigError(f"{at}: every evaluation must list the same clients, got {sorted({len(r) for r in found})}")
    return found


def _with_test_data(curves: Sequence[Curve], samples: Any) -> tuple[tuple[Curve, ...], tuple[str, ...]]:
    """Take clients without test data out of every list: those with no accuracy anywhere, or with 0 test samples."""
    counts = {curve.algorithm: len(curve.accuracies[0]) for curve in curves}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} {n}" for name, n in counts.items())
        raise ConfigError(f"algorithms: all must have the same clients, got {shown}")
    clients = range(next(iter(counts.values())))
    sizes = None if samples is None else [_whole(n, "test_samples") for n in _list(samples, "test_samples")]
    if sizes is not None and (len(sizes) != len(clients) or min(sizes) < 0):
        raise ConfigError(f"test_samples must list a number >= 0 for each of the {len(clients)} clients")
    kept = [
        i
        for i in clients
        if (sizes is None or sizes[i] > 0) and any(row[i] is not None for curve in curves for row in curve.accuracies)
    ]
    if len(kept) == len(clients) or not kept:
        kept = list(clients)
    gone = sorted(set(clients) - set(kept))
    warnings = (f"without test data, left out everywhere: clients {', '.join(map(str, gone))}",) if gone else ()
    weights = None if sizes is None else tuple(sizes[i] for i in kept)
    return tuple(_only_clients(curve, kept, weights) for curve in curves), warnings


def _only_clients(curve: Curve, kept: Sequence[int], weights: tuple[int, ...] | None) -> Curve:
    rows = tuple(tuple(row[i] for i in kept) for row in curve.accuracies)
    return replace(curve, accuracies=rows, test_samples=weights)


def _named(tree: Any, at: str) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(tree, dict) or not tree:
        raise ConfigError(f"{at} must be an object of algorithms, with at least one")
    for name, given in tree.items():
        if not isinstance(given, dict):
            raise ConfigError(f"{at}.{name} must be an object, got {given!r:.40}")
    return tree


def _only(given: Mapping[str, Any], allowed: Sequence[str], at: str) -> None:
    for key in given:
        if key not in allowed:
            raise ConfigError(f"{at} has no key '{key}'{nearest(key, list(allowed))}; it has {', '.join(allowed)}")


def _list(given: Any, at: str) -> list[Any]:
    if not isinstance(given, list) or not given:
        raise ConfigError(f"{at} must be a list with at least one value, got {given!r:.40}")
    return given


def _number(given: Any, at: str) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not math.isfinite(given):
        raise ConfigError(f"{at} must be a number, got {given!r:.40}")
    return float(given)


def _whole(given: Any, at: str) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise ConfigError(f"{at} must be a whole number, got {given!r:.40}")
    return given


def _share(given: Any, at: str) -> float | None:
    """A fraction; null and NaN are missing."""
    if given is None or (isinstance(given, float) and math.isnan(given)):
        return None
    value = _number(given, at)
    if not 0 <= value <= 1:
        hint = "; is it in percent?" if 1 < value <= 100 else ""
        raise ConfigError(f"{at} must be a fraction in [0, 1], got {value:g}{hint}")
    return value
