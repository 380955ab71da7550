"""Runs as curves of two clients, for tests of the HEM index."""

from __future__ import annotations

from fedhpc.report.hem import Comparison, Curve, HemOptions, judge


def curve(
    name: str,
    *means: float | None,
    seconds: float = 1.0,
    rounds: tuple[int, ...] = (),
    seed: int = 0,
    base: str | None = None,
    spread: float = 0.0,
    trained: int | None = None,
) -> Curve:
    """A run with two clients, evaluated from round 1 on."""
    rounds = rounds or tuple(range(1, len(means) + 1))
    accuracies = tuple((None, 0.5) if m is None else (m - spread, m + spread) for m in means)
    trained = rounds[-1] if trained is None else trained
    return Curve(name, base, rounds, accuracies, (seconds,) * trained, (0.0,) * trained, seed)


def compare(*curves: Curve, target: float = 0.8, cap: int = 4) -> Comparison:
    return Comparison(target, cap, curves)


def components(comparison: Comparison, component: str, options: HemOptions | None = None) -> dict[str, float | None]:
    return {name: index[component] for name, index in judge(comparison, options).components.items()}
