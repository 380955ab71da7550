"""Several runs of one algorithm as one: which seeds are compared, and how their raw quantities are summed up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean

from fedhpc.errors import ConfigError
from fedhpc.report._hem_index import HemOptions, Indices, computation_indices, fairness_indices
from fedhpc.report._hem_measures import (
    CLOCKS,
    Accuracies,
    ClientFigures,
    Curve,
    Measures,
    Personalization,
    measure,
    personalization,
)
from fedhpc.report.timing import median


@dataclass(frozen=True, kw_only=True)
class Figures(ClientFigures):
    """Raw quantities of one algorithm, over all its seeds: means, unless said otherwise; None: not defined.

    The client figures are means over seeds, not defined if an accuracy is missing in any seed.

    Attributes:
        rounds_to_target: median; None if half of the runs or more did not reach the target.
        sustained: the same for three evaluations in a row.
        convergence: index; a run that did not reach the target counts as 0.
        tta: clock to seconds: geometric mean, or median where a run of the comparison is censored or took no time.
        full_time: clock to seconds, in the same way.
        reached: runs that reached the target.
        total: runs.
        censored: runs that ended before the cap without reaching the target.
        unfinished: runs that may still go on.
        diverged: runs that came to no end.
        interval: most rounds between two evaluations.
        curve: mean client accuracy per evaluation, of a single run; else None.
    """

    rounds_to_target: float | None
    sustained: float | None
    convergence: float
    tta: Mapping[str, float | None]
    full_time: Mapping[str, float]
    reached: int
    total: int
    censored: int
    unfinished: int
    diverged: int
    interval: int
    curve: Accuracies | None


_MEANS = tuple(field.name for field in fields(ClientFigures))


@dataclass(frozen=True)
class Run:
    """One run, measured."""

    measures: Measures
    finished: bool
    diverged: bool = False

    @property
    def tta(self) -> dict[str, float | None]:
        """Clock to time to accuracy."""
        return self.measures.tta


@dataclass(frozen=True)
class Group:
    """The runs that are compared.

    Attributes:
        runs: algorithm to runs, by seed.
        seeds: the seeds of all of them, ascending.
        paired: whether all algorithms have the same seeds, so that they can be resampled together.
        personalization: of the algorithms with a base.
        warnings: what was left out, and what is odd.
    """

    runs: Mapping[str, Sequence[Run]]
    seeds: tuple[int, ...]
    paired: bool
    personalization: Mapping[str, Personalization]
    warnings: tuple[str, ...]


def group(curves: Sequence[Curve], target: float, cap: int) -> Group:
    """Measure the runs and sort them by algorithm and seed; only seeds that all algorithms have are compared.

    Raises:
        ConfigError: two runs have one algorithm and one seed.
    """
    runs: dict[str, dict[int, Run]] = {}
    for curve in curves:
        found = runs.setdefault(curve.algorithm, {})
        if curve.seed in found:
            raise ConfigError(f"{curve.algorithm}: there are two runs with seed {curve.seed}; give one of them")
        found[curve.seed] = Run(measure(curve, target, cap), curve.finished, curve.diverged)
    every = {seed for found in runs.values() for seed in found}
    common = {seed for seed in every if all(seed in found for found in runs.values())}
    warnings = [_seed_warning(runs, common)] if common != every else []
    used = common or every
    kept = {name: [found[s] for s in sorted(found) if s in used] for name, found in runs.items()}
    warnings += _odd(kept, cap)
    bases = {curve.algorithm: curve.base for curve in curves if curve.base is not None}
    gains = {name: _gain(runs, name, base, used) for name, base in bases.items()}
    return Group(kept, tuple(sorted(used)), bool(common), gains, tuple(warnings))


def _seed_warning(runs: Mapping[str, Mapping[int, Run]], common: set[int]) -> str:
    have = "; ".join(f"{name}: {', '.join(map(str, sorted(found)))}" for name, found in runs.items())
    if common:
        return f"only seeds that every algorithm has are compared: {', '.join(map(str, sorted(common)))} ({have})"
    return f"the algorithms have no seed in common, so runs are not paired and HEM has no intervals ({have})"


def _odd(runs: Mapping[str, Sequence[Run]], cap: int) -> list[str]:
    warnings = []
    intervals = {name: max(run.measures.interval for run in found) for name, found in runs.items()}
    if len(set(intervals.values()) - {0}) > 1:  # 0: evaluated before training only
        shown = ", ".join(f"{name} {n}" for name, n in intervals.items())
        warnings.append(f"rounds between evaluations differ, so rounds to the target do not compare: {shown}")
    early = [
        name
        for name, found in runs.items()
        if any(r.measures.rounds_to_target is not None and r.measures.rounds_run < cap for r in found)
    ]
    if early:
        warnings.append(
            f"ended at the target, before round {cap}: {', '.join(early)}; their accuracy and fairness are of that "
            "moment"
        )
    return warnings


def _gain(runs: Mapping[str, Mapping[int, Run]], name: str, base: str, seeds: set[int]) -> Personalization:
    """Mean over the seeds that both have of the median gain over clients."""
    shared = [s for s in sorted(seeds) if s in runs[name] and s in runs.get(base, {})]
    gains = [_gain_of(name, base, runs[name][s].measures.final, runs[base][s].measures.final) for s in shared]
    return Personalization(_mean([gain.percent for gain in gains]), sum(gain.excluded for gain in gains))


def _gain_of(name: str, base: str, personal: Accuracies, plain: Accuracies) -> Personalization:
    if len(personal) != len(plain):
        raise ConfigError(f"{name} has {len(personal)} clients, {base} has {len(plain)}; they must have the same ones")
    return personalization(personal, plain)


def times_needing_median(grouped: Group) -> bool:
    """Whether times are summed up by medians: a run is censored, or reached its target before any training."""
    return any(not all(run.tta.values()) for runs in grouped.runs.values() for run in runs)


def figures_of(runs: Sequence[Run], by_median: bool) -> Figures:
    """Sum up runs of one algorithm."""
    found = [run.measures for run in runs]
    middle = median if by_median else _geometric_mean
    return Figures(
        **{key: _mean([getattr(m, key) for m in found]) for key in _MEANS},
        rounds_to_target=median([m.rounds_to_target for m in found]),
        sustained=median([m.sustained for m in found]),
        convergence=fmean(m.convergence for m in found),
        tta={clock: middle([m.tta[clock] for m in found]) for clock in CLOCKS},
        full_time={clock: middle([m.full_time[clock] for m in found]) or 0.0 for clock in CLOCKS},
        reached=sum(m.rounds_to_target is not None for m in found),
        total=len(found),
        censored=sum(m.censored for m in found),
        unfinished=sum(not run.finished for run in runs),
        diverged=sum(run.diverged for run in runs),
        interval=max(m.interval for m in found),
        curve=found[0].curve if len(found) == 1 else None,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _geometric_mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return known[0] if len(known) == 1 else math.exp(fmean(map(math.log, known)))


def components(figures: Mapping[str, Figures], options: HemOptions) -> dict[str, Indices]:
    """The four indices of every algorithm; one without a final accuracy has no part in the comparative ones."""
    compared = [name for name, f in figures.items() if f.entropy is not None]
    times = [figures[name].tta[options.clock] for name in compared]
    full = [figures[name].full_time[options.clock] for name in compared]
    entropies = [figures[name].entropy or 0.0 for name in compared]
    indexed = computation_indices(times, full, options.computation, options.reference_seconds)
    computed = dict(zip(compared, indexed, strict=True))
    fair = dict(zip(compared, fairness_indices(entropies, options.fairness), strict=True))
    return {
        name: {
            "accuracy": f.client_accuracy,
            "convergence": f.convergence,
            "computation": computed.get(name),
            "fairness": fair.get(name),
        }
        for name, f in figures.items()
    }
