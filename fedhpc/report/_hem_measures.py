"""What one run says about one algorithm, before anything is compared: the raw quantities of the HEM study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, pstdev

CLOCKS = ("train", "all")
SLACK = 1e-12
"""0.8 computed as 0.7999999999999999 counts as 0.8."""
_SUSTAINED = 3

Accuracies = tuple[float | None, ...]
"""One accuracy a client, always in the same order; None where it is not a number or missing."""


@dataclass(frozen=True)
class Curve:
    """One run of one algorithm: what was measured.

    Attributes:
        algorithm: the name it is compared under.
        base: name of the algorithm without personalisation that it belongs to; None for one without.
        rounds: evaluated rounds, rising; 0 is before training.
        accuracies: per evaluation the accuracy of every client on its own test samples, fractions.
        train_seconds: per training round.
        evaluate_seconds: the evaluation's part of each training round; 0 in a round without one.
        seed: runs with one seed are compared with each other.
        test_samples: per client, where known: weights of a second mean.
        finished: False if the run may still go on.
        diverged: whether it came to no end, because no client's result could be used any more.
    """

    algorithm: str
    base: str | None
    rounds: tuple[int, ...]
    accuracies: tuple[Accuracies, ...]
    train_seconds: tuple[float, ...]
    evaluate_seconds: tuple[float, ...]
    seed: int = 0
    test_samples: tuple[int, ...] | None = None
    finished: bool = True
    diverged: bool = False


@dataclass(frozen=True, kw_only=True)
class ClientFigures:
    """What the accuracies of all clients say together; fractions, None: not defined.

    Attributes:
        client_accuracy: unweighted mean; None if an accuracy is missing.
        weighted_accuracy: the same weighted by test samples.
        std, minimum, worst_decile, jain, gini: how equal the clients are.
        entropy: -Σ a ln a, not normalised (equation 1 of the HEM paper).
        entropy_normalised: Shannon's entropy of a/Σa.
    """

    client_accuracy: float | None
    weighted_accuracy: float | None
    std: float | None
    minimum: float | None
    worst_decile: float | None
    jain: float | None
    gini: float | None
    entropy: float | None
    entropy_normalised: float | None


@dataclass(frozen=True, kw_only=True)
class Measures(ClientFigures):
    """Raw quantities of one run. Accuracies are fractions, times seconds; None: not defined.

    Attributes:
        final: every client's accuracy at the last evaluated round, which the client figures are of; all missing in a
            run that diverged.
        last_round: that round.
        curve: mean client accuracy per evaluation.
        rounds_to_target: first evaluated round with the target accuracy; None if none.
        sustained: the same for three evaluations in a row.
        convergence: 1 - R/T, 0 if the target was not reached.
        tta: clock to seconds until that round, None if not reached.
        full_time: clock to seconds of the whole run.
        interval: most rounds between two evaluations.
        rounds_run: training rounds done, T at most.
        censored: ended before T without reaching the target.
    """

    final: Accuracies
    last_round: int
    curve: Accuracies
    rounds_to_target: int | None
    sustained: int | None
    convergence: float
    tta: dict[str, float | None]
    full_time: dict[str, float]
    interval: int
    rounds_run: int
    censored: bool


def measure(curve: Curve, target: float, cap: int) -> Measures:
    """Measure one run up to round `cap` (T) against a target accuracy."""
    kept = [(r, a) for r, a in zip(curve.rounds, curve.accuracies, strict=True) if r <= cap]
    rounds, means = [r for r, _ in kept], [_mean(a) for _, a in kept]
    final: Accuracies = (None,) * len(kept[-1][1]) if curve.diverged else kept[-1][1]
    complete = _complete(final)
    reached = _first_reached(rounds, means, target, 1)
    end = min(cap, len(curve.train_seconds))
    train, evaluate = curve.train_seconds, curve.evaluate_seconds
    return Measures(
        final=final,
        last_round=rounds[-1],
        curve=tuple(means),
        client_accuracy=_mean(final),
        weighted_accuracy=_weighted(complete, curve.test_samples),
        std=pstdev(complete) if complete else None,
        minimum=min(complete) if complete else None,
        worst_decile=fmean(sorted(complete)[: max(1, len(complete) // 10)]) if complete else None,
        jain=jain(complete) if complete else None,
        gini=gini(complete) if complete else None,
        entropy=entropy(complete) if complete else None,
        entropy_normalised=entropy_normalised(complete) if complete else None,
        rounds_to_target=reached,
        sustained=_first_reached(rounds, means, target, _SUSTAINED),
        convergence=0.0 if reached is None else 1.0 - reached / cap,
        tta={clock: None if reached is None else _seconds(train, evaluate, clock, reached) for clock in CLOCKS},
        full_time={clock: _seconds(train, evaluate, clock, end) for clock in CLOCKS},
        interval=max(after - before for before, after in zip([0, *rounds], rounds, strict=False)),
        rounds_run=end,
        censored=reached is None and end < cap,
    )


def _mean(accuracies: Accuracies) -> float | None:
    complete = _complete(accuracies)
    return fmean(complete) if complete else None


def _complete(accuracies: Accuracies) -> list[float]:
    """All accuracies, or none if one is missing: a mean over the rest would flatter."""
    known = [a for a in accuracies if a is not None]
    return known if len(known) == len(accuracies) else []


def _weighted(accuracies: Sequence[float], samples: Sequence[int] | None) -> float | None:
    if not accuracies or not samples:
        return None
    return math.fsum(a * n for a, n in zip(accuracies, samples, strict=True)) / sum(samples)


def _first_reached(rounds: Sequence[int], means: Sequence[float | None], target: float, times: int) -> int | None:
    """First evaluated round from which on the target is met `times` evaluations in a row."""
    met = [mean is not None and mean + SLACK >= target for mean in means]
    for i in range(len(met) - times + 1):
        if all(met[i : i + times]):
            return rounds[i]
    return None


def _seconds(train: Sequence[float], evaluate: Sequence[float], clock: str, end: int) -> float:
    return math.fsum(train[:end]) + (math.fsum(evaluate[:end]) if clock == "all" else 0.0)


def entropy(accuracies: Sequence[float]) -> float:
    """Return -Σ a ln a with 0·ln 0 = 0: the paper's fairness quantity, no measure of spread (spec, section 4)."""
    return -math.fsum(a * math.log(a) for a in accuracies if a > 0) + 0.0


def entropy_normalised(accuracies: Sequence[float]) -> float | None:
    """Shannon's entropy of the accuracies' shares; None if all are 0."""
    total = math.fsum(accuracies)
    return entropy([a / total for a in accuracies]) if total > 0 else None


def jain(accuracies: Sequence[float]) -> float | None:
    """Jain's index (Σa)²/(I·Σa²): 1 if all are equal, 1/I if one has everything; None if all are 0."""
    squares = math.fsum(a * a for a in accuracies)
    return math.fsum(accuracies) ** 2 / (len(accuracies) * squares) if squares > 0 else None


def gini(accuracies: Sequence[float]) -> float | None:
    """Gini's coefficient: 0 if all are equal, towards 1 if one has everything; None if all are 0."""
    total, n = math.fsum(accuracies), len(accuracies)
    if total <= 0:
        return None
    return max(0.0, math.fsum((2 * i - n + 1) * a for i, a in enumerate(sorted(accuracies))) / (n * total))


@dataclass(frozen=True)
class Personalization:
    """What personalisation gains.

    Attributes:
        percent: median over clients of the relative gain in accuracy; None if it is not defined.
        excluded: clients whose accuracy without personalisation is 0.
    """

    percent: float | None
    excluded: int


def personalization(personal: Accuracies, base: Accuracies) -> Personalization:
    """Median over clients of 100·(a_personal - a_base)/a_base; not defined where an accuracy is missing."""
    excluded = sum(b == 0 for b in base)
    pairs = list(zip(personal, base, strict=True))
    gains = [100 * (p - b) / b for p, b in pairs if p is not None and b is not None and b > 0]
    defined = gains and len(gains) + excluded == len(pairs) and None not in personal
    return Personalization(median(gains) if defined else None, excluded)
