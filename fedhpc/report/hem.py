"""The holistic evaluation metrics: how good an algorithm is for a use case, from curves or from component indices.

After "Holistic Evaluation Metrics: Use Case Sensitive Evaluation Metrics for Federated Learning" (arXiv 2405.02360).
Raw quantities are in `_hem_measures`, indices and HEM in `_hem_index`. Of several seeds the raw quantities are summed
up first (`_hem_seeds`) and indexed then, so that a table's indices are those of the figures beside them; times by their
geometric mean, or, as soon as one run of the comparison is censored, by their median.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedhpc.errors import ConfigError
from fedhpc.report._hem_index import BANDS, COMPONENTS, USE_CASES, Band, HemOptions, Importances, Indices
from fedhpc.report._hem_index import band as band_of
from fedhpc.report._hem_index import hem as hem_of
from fedhpc.report._hem_measures import Curve, Measures, Personalization
from fedhpc.report._hem_seeds import Figures, Group, components, figures_of, group, times_needing_median
from fedhpc.report.timing import (
    LogInterval,
    TimeToAccuracy,
    paired_ratio,
    percentile_interval,
    resamples,
    summarize_times,
)

__all__ = [
    "BANDS",
    "COMPONENTS",
    "USE_CASES",
    "Band",
    "Comparison",
    "Curve",
    "Figures",
    "HemOptions",
    "HemReport",
    "Importances",
    "IndexTable",
    "Measures",
    "Personalization",
    "Stability",
    "judge",
]

Interval = tuple[float, float]


@dataclass(frozen=True)
class Comparison:
    """Curves of several algorithms that are compared with each other.

    Attributes:
        target: accuracy that convergence and computation are measured by, a fraction.
        cap: T, the most rounds.
        curves: one per run.
        warnings: what the reader of the runs found odd.
    """

    target: float
    cap: int
    curves: tuple[Curve, ...]
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.target <= 1:
            raise ConfigError(f"target must be a fraction above 0 and at most 1, got {self.target} (80 % is 0.8)")
        if self.cap < 1:
            raise ConfigError(f"the cap on rounds must be at least 1, got {self.cap}")
        if not self.curves:
            raise ConfigError("there is no algorithm to compare")


@dataclass(frozen=True)
class IndexTable:
    """Component indices that were computed elsewhere: algorithm to component to index, None where there is none."""

    indices: Mapping[str, Indices]


@dataclass(frozen=True)
class Stability:
    """How often the algorithm with the highest HEM stays first when the seeds are drawn anew.

    Attributes:
        winner: the algorithm.
        share: of the resamples, ties shared.
        shares: the same of every algorithm.
    """

    winner: str
    share: float
    shares: Mapping[str, float]


@dataclass(frozen=True)
class HemReport:
    """A comparison judged. Mappings are by algorithm, or by use case and then algorithm; None: not defined.

    Attributes:
        options: how it was judged.
        algorithms: in the order of the input.
        components: the four indices.
        hem: use case to algorithm to HEM.
        band: use case to algorithm to band.
        flags: what keeps a figure from being what it seems.
        warnings: the same for the comparison as a whole.
        target, cap: of the curves; None for a table of indices, as all that follows is empty for one.
        seeds: the seeds that were compared, ascending.
        figures: raw quantities.
        personalization: of the algorithms with a base.
        times: time to accuracy with intervals, on the chosen clock.
        ratios: time to accuracy over that of `reference`, paired by seed.
        reference: the algorithm that `ratios` compares with.
        hem_intervals: bootstrap over seeds, jointly for all algorithms.
        component_intervals: the same of the indices.
        stability: use case to rank stability.
    """

    options: HemOptions
    algorithms: tuple[str, ...]
    components: Mapping[str, Indices]
    hem: Mapping[str, Mapping[str, float | None]]
    band: Mapping[str, Mapping[str, str | None]]
    flags: Mapping[str, tuple[str, ...]]
    warnings: tuple[str, ...] = ()
    target: float | None = None
    cap: int | None = None
    seeds: tuple[int, ...] = ()
    figures: Mapping[str, Figures] = field(default_factory=dict)
    personalization: Mapping[str, Personalization] = field(default_factory=dict)
    times: Mapping[str, TimeToAccuracy] = field(default_factory=dict)
    ratios: Mapping[str, LogInterval | None] = field(default_factory=dict)
    reference: str | None = None
    hem_intervals: Mapping[str, Mapping[str, Interval | None]] = field(default_factory=dict)
    component_intervals: Mapping[str, Mapping[str, Interval | None]] = field(default_factory=dict)
    stability: Mapping[str, Stability | None] = field(default_factory=dict)


def judge(what: Comparison | IndexTable, options: HemOptions | None = None) -> HemReport:
    """Judge a comparison.

    Raises:
        ConfigError: what is compared does not belong together, or an option does not fit.
    """
    options = options or HemOptions()
    return _judge_indices(what, options) if isinstance(what, IndexTable) else _judge_curves(what, options)


def _judge_indices(table: IndexTable, options: HemOptions) -> HemReport:
    values = _hems(table.indices, options.importances)
    flags = {a: ("missing_index",) if None in i.values() else () for a, i in table.indices.items()}
    bands = _bands(values, options.importances.bands)
    return HemReport(options, tuple(table.indices), table.indices, values, bands, flags)


def _judge_curves(comparison: Comparison, options: HemOptions) -> HemReport:
    grouped = group(comparison.curves, comparison.target, comparison.cap)
    by_median = times_needing_median(grouped)
    figures = {name: figures_of(runs, by_median) for name, runs in grouped.runs.items()}
    indices = components(figures, options)
    values = _hems(indices, options.importances)
    times = {
        name: summarize_times([run.tta[options.clock] for run in runs], options.level)
        for name, runs in grouped.runs.items()
    }
    reference = "FedAvg" if "FedAvg" in figures else next(iter(figures))
    hem_intervals, component_intervals, stability = _bootstrap(grouped, by_median, values, options)
    return HemReport(
        options,
        tuple(figures),
        indices,
        values,
        _bands(values, options.importances.bands),
        flags={name: _flags(figures[name], indices[name]) for name in figures},
        warnings=(*comparison.warnings, *grouped.warnings),
        target=comparison.target,
        cap=comparison.cap,
        seeds=grouped.seeds,
        figures=figures,
        personalization=grouped.personalization,
        times=times,
        ratios=_ratios(grouped, reference, options) if grouped.paired else {},
        reference=reference if grouped.paired else None,
        hem_intervals=hem_intervals,
        component_intervals=component_intervals,
        stability=stability,
    )


def _hems(indices: Mapping[str, Indices], importances: Importances) -> dict[str, dict[str, float | None]]:
    return {
        case: {name: hem_of(index, weights) for name, index in indices.items()}
        for case, weights in importances.use_cases.items()
    }


def _bands(values: Mapping[str, Mapping[str, float | None]], bands: Sequence[Band]) -> dict[str, dict[str, str | None]]:
    return {case: {name: band_of(value, bands) for name, value in row.items()} for case, row in values.items()}


def _flags(figures: Figures, indices: Indices) -> tuple[str, ...]:
    missing = figures.client_accuracy is None
    found = {
        "diverged": figures.diverged > 0,
        "nan_accuracy": missing and not figures.diverged,
        "target_not_reached": figures.reached == 0,
        "partly_reached": 0 < figures.reached < figures.total,
        "censored": figures.censored > 0,
        "unfinished": figures.unfinished > 0,
        "comparative_index_undefined": not missing and None in (indices["computation"], indices["fairness"]),
    }
    return tuple(name for name, holds in found.items() if holds)


def _ratios(grouped: Group, reference: str, options: HemOptions) -> dict[str, LogInterval | None]:
    base = [run.tta[options.clock] for run in grouped.runs[reference]]
    return {
        name: paired_ratio([run.tta[options.clock] for run in runs], base, options.level)
        for name, runs in grouped.runs.items()
        if name != reference
    }


def _bootstrap(
    grouped: Group, by_median: bool, values: Mapping[str, Mapping[str, float | None]], options: HemOptions
) -> tuple[dict[str, dict[str, Interval | None]], dict[str, dict[str, Interval | None]], dict[str, Stability | None]]:
    """Draw the seeds anew, the same for all algorithms because the indices couple them, and judge again."""
    if len(grouped.seeds) < 2 or not grouped.paired or options.resamples < 1:
        return {}, {}, {}
    known: dict[tuple[int, ...], Mapping[str, Indices]] = {}
    drawn = []
    for sample in resamples(len(grouped.seeds), options.resamples):
        if sample not in known:
            chosen = {name: figures_of([runs[i] for i in sample], by_median) for name, runs in grouped.runs.items()}
            known[sample] = components(chosen, options)
        drawn.append(known[sample])
    names = tuple(grouped.runs)
    again = [_hems(indices, options.importances) for indices in drawn]
    hem_intervals = {
        case: {name: percentile_interval([v[case][name] for v in again], options.level) for name in names}
        for case in values
    }
    component_intervals = {
        name: {c: percentile_interval([indices[name][c] for indices in drawn], options.level) for c in COMPONENTS}
        for name in names
    }
    stability = {case: _stability(values[case], [v[case] for v in again]) for case in values}
    return hem_intervals, component_intervals, stability


def _stability(values: Mapping[str, float | None], again: Sequence[Mapping[str, float | None]]) -> Stability | None:
    winners = _first(values)
    if not winners:
        return None
    shares = dict.fromkeys(values, 0.0)
    for row in again:
        first = _first(row)
        for name in first:
            shares[name] += 1 / len(first) / len(again)
    return Stability(winners[0], shares[winners[0]], shares)


def _first(values: Mapping[str, float | None]) -> list[str]:
    """The algorithms with the highest HEM, several if it is the same to 12 decimals."""
    known = {name: round(value, 12) for name, value in values.items() if value is not None}
    best = max(known.values(), default=None)
    return [name for name, value in known.items() if value == best]
