"""A judged comparison as text, LaTeX and JSON. What is not defined is a dash (text) or null (JSON), never 0."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

import fedhpc
from fedhpc.report._hem_index import COMPONENTS
from fedhpc.report._hem_seeds import Figures
from fedhpc.report.hem import HemReport
from fedhpc.report.timing import LogInterval, TimeToAccuracy

FORMAT = 1
MISSING = "-"
TITLES = {"iot": "IoT", "smartphone": "Smartphone", "institution": "Institution"}
_FLAGS = {
    "diverged": "a run diverged and has no final accuracy: not compared, no HEM",
    "nan_accuracy": "an accuracy is missing in the last evaluation: not compared, no HEM",
    "target_not_reached": "convergence and computation are 0; there is no time to accuracy",
    "partly_reached": "some runs did not reach the target: times are medians, those runs count as longest",
    "censored": "a run ended before the cap without reaching the target",
    "unfinished": "a run may still go on",
    "comparative_index_undefined": "nothing to compare with; --computation fixed_reference=SECONDS is absolute",
    "missing_index": "the input lacks an index",
}
_COMPARED = "computation and fairness compare the algorithms of this table: they change when one is added or removed."
_FAIRNESS = (
    "fairness is the HEM paper's index of H = -sum(a ln a), which does not measure how equal clients are:",
    "read client std, worst tenth, Jain (1: all equal) and Gini (0: all equal) for that.",
)
_MPI = (
    "MPI: median over clients of the gain in accuracy over the same algorithm without personalisation, in % of the",
    "accuracy without; of several seeds the mean. It is not part of HEM.",
)
_ENOUGH_SEEDS = 5
_ESCAPES = str.maketrans({c: f"\\{c}" for c in "&%$#_{}"} | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}"})
_Table = tuple[list[str], list[list[str]]]
"""Titles and rows; the first column is text, the others are numbers."""


def text_table(report: HemReport) -> str:
    """The comparison as text: indices and HEM, importances, raw quantities, and what to know about them."""
    parts = [[_headline(report)], _grid(*_hem_cells(report)), _grid(*_importance_cells(report))]
    if report.figures:
        parts.append(_grid(*_raw_cells(report)))
    notes = list(_notes(report))
    parts += [notes] if notes else []
    parts.append(list(_reading(report)))
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def latex_table(report: HemReport) -> str:
    """Indices and HEM, and the raw quantities, as two LaTeX tabulars (they need the package booktabs).

    Comments above them say what a caption should.
    """
    tables = [_hem_cells(report), *([_raw_cells(report)] if report.figures else [])]
    about = [_headline(report), *_notes(report), *_reading(report)]
    return "\n".join(["".join(f"% {line}\n" for line in about), *(_latex(*table) for table in tables)])


def _reading(report: HemReport) -> Iterator[str]:
    """What the columns mean."""
    level = f"{100 * report.options.level:g} %"
    yield _COMPARED
    if report.hem_intervals:
        yield f"[low, high] of HEM: {level} of {report.options.resamples} bootstrap resamples of the seeds."
    if _repeated(report):
        yield f"interval: {level} t-interval of the mean log time; with a coverage behind it, that of the median."
        yield "other raw figures: means over seeds, rounds medians, times geometric means (medians if one is censored);"
        yield "the indices and HEM are made of these."
    if report.ratios and any(ratio and ratio.ci for ratio in report.ratios.values()):
        yield f"time ratio: geometric mean over seeds [{level} t-interval of the mean log ratio]."
    yield from _FAIRNESS if report.figures else ()
    yield from _MPI if report.personalization else ()


def _repeated(report: HemReport) -> bool:
    """Whether any algorithm has several runs; seeds alone do not tell, as algorithms may have different ones."""
    return any(figures.total > 1 for figures in report.figures.values())


def _headline(report: HemReport) -> str:
    options = report.options
    kind: str = options.computation
    if options.reference_seconds is not None:
        kind = f"{kind}={options.reference_seconds:g} s"
    words = [f"computation {kind} on the {options.clock} clock", f"fairness {options.fairness}"]
    if report.target is None:
        return "HEM of given indices"
    seeds = f"{len(report.seeds)} seeds" if len(report.seeds) > 1 else f"seed {report.seeds[0]}"
    return f"HEM: target {100 * report.target:g} %, at most {report.cap} rounds, {seeds}; {'; '.join(words)}"


def _hem_cells(report: HemReport) -> _Table:
    cases = list(report.hem)
    head = ["algorithm", *COMPONENTS, *(TITLES.get(case, case) for case in cases)]
    rows = [
        [
            name,
            *(_fixed(report.components[name][c], 3) for c in COMPONENTS),
            *(_hem_cell(report, case, name) for case in cases),
        ]
        for name in report.algorithms
    ]
    if report.personalization:
        head.append("MPI %")
        for row in rows:
            gain = report.personalization.get(row[0])
            row.append(_fixed(gain.percent if gain else None, 2))
    return head, rows


def _hem_cell(report: HemReport, case: str, name: str) -> str:
    value = report.hem[case][name]
    if value is None:
        return MISSING
    interval = report.hem_intervals.get(case, {}).get(name)
    shown = f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""
    return f"{value:.3f}{shown} {report.band[case][name]}"


def _importance_cells(report: HemReport) -> _Table:
    use_cases = report.options.importances.use_cases
    return (
        ["importance", *COMPONENTS],
        [[TITLES.get(case, case), *(f"{weights[c]:g}" for c in COMPONENTS)] for case, weights in use_cases.items()],
    )


def _raw_cells(report: HemReport) -> _Table:
    head = [
        "algorithm", "accuracy %", "client std %", "min %", "worst tenth %", "Jain", "Gini", "H", "rounds", "reached",
        f"{report.options.clock} s to target",
    ]  # fmt: skip
    several = _repeated(report)
    head += ["interval"] if several else []
    head += [f"time / {report.reference}'s"] if several and report.ratios else []
    rows = []
    for name in report.algorithms:
        row = [name, *_raw_row(report.figures[name], report.options.clock)]
        row += [_interval(report.times[name])] if several else []
        row += [_ratio(report.ratios.get(name))] if several and report.ratios else []
        rows.append(row)
    return head, rows


def _raw_row(figures: Figures, clock: str) -> list[str]:
    shares = (figures.client_accuracy, figures.std, figures.minimum, figures.worst_decile)
    return [
        *(_fixed(None if share is None else 100 * share, 2) for share in shares),
        *(_fixed(value, 3) for value in (figures.jain, figures.gini, figures.entropy)),
        MISSING if figures.rounds_to_target is None else f"{figures.rounds_to_target:g}",
        f"{figures.reached}/{figures.total}",
        _seconds(figures.tta[clock]),
    ]


def _interval(times: TimeToAccuracy) -> str:
    """The log-scale interval, or where a run is censored that of order statistics with its coverage."""
    if times.total < 2:
        return MISSING
    if times.log is not None and times.log.ci is not None:
        return f"[{_seconds(times.log.ci[0])}, {_seconds(times.log.ci[1])}]"
    low, high = (MISSING if end is None else _seconds(end) for end in times.order.ci)
    return MISSING if low == MISSING else f"[{low}, {high}] {100 * times.order.coverage:.1f} %"


def _ratio(ratio: LogInterval | None) -> str:
    if ratio is None:
        return MISSING
    interval = f" [{_seconds(ratio.ci[0])}, {_seconds(ratio.ci[1])}]" if ratio.ci else ""
    return f"{ratio.geometric_mean:.3f}{interval}"


def _fixed(value: float | None, digits: int) -> str:
    return MISSING if value is None else f"{value:.{digits}f}"


def _seconds(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _notes(report: HemReport) -> Iterator[str]:
    runs = max((figures.total for figures in report.figures.values()), default=0)
    if 1 < runs < _ENOUGH_SEEDS:
        yield (
            f"all intervals, and the shares below, rest on {runs} seeds: too few to rank algorithms by; "
            f"{_ENOUGH_SEEDS} or more are advised"
        )
    for case, stability in report.stability.items():
        if stability is not None:
            yield (
                f"{TITLES.get(case, case)}: {stability.winner} is first in {100 * stability.share:.1f} % of "
                f"{report.options.resamples} resamples of the seeds"
            )
    for flag, meaning in _FLAGS.items():
        names = [name for name in report.algorithms if flag in report.flags[name]]
        if names:
            yield f"{flag}: {', '.join(names)} ({meaning})"
    interval = max((figures.interval for figures in report.figures.values()), default=1)
    if interval > 1:
        yield f"rounds to the target are those of evaluations, which are up to {interval} rounds apart"
    for name, gain in report.personalization.items():
        if gain.excluded:
            yield f"MPI of {name}: {gain.excluded} clients with accuracy 0 without personalisation are left out"
    for warning in report.warnings:
        yield f"warning: {warning}"


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    words = [any(c.isalpha() for row in rows for c in row[i]) for i in range(len(head))]
    places = [str.ljust if i == 0 or word else str.rjust for i, word in enumerate(words)]
    lines.insert(1, ["-" * width for width in widths])
    return ["  ".join(put(c, w) for put, c, w in zip(places, line, widths, strict=True)).rstrip() for line in lines]


def _latex(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return " & ".join("--" if c == MISSING else c.translate(_ESCAPES) for c in cells) + r" \\"

    lines = [r"\begin{tabular}{l" + "r" * (len(head) - 1) + "}", r"\toprule", line(head), r"\midrule"]
    return "\n".join([*lines, *map(line, rows), r"\bottomrule", r"\end{tabular}"]) + "\n"


def json_report(report: HemReport) -> str:
    """Everything about the comparison as JSON."""
    return json.dumps(to_dict(report), indent=1, allow_nan=False) + "\n"


def to_dict(report: HemReport) -> dict[str, Any]:
    """Everything about the comparison as plain values: `hem[use_case][algorithm]` and what it was made of."""
    options, gains = report.options, report.personalization
    return {
        "format": FORMAT,
        "fedhpc": fedhpc.__version__,
        "options": {
            "computation": options.computation,
            "reference_seconds": options.reference_seconds,
            "clock": options.clock,
            "fairness": options.fairness,
            "resamples": options.resamples,
            "level": options.level,
        },
        "importances": {case: dict(weights) for case, weights in options.importances.use_cases.items()},
        "bands": [dataclasses.asdict(band) for band in options.importances.bands],
        "target": report.target,
        "max_rounds": report.cap,
        "seeds": list(report.seeds),
        "algorithms": list(report.algorithms),
        "components": {name: dict(index) for name, index in report.components.items()},
        "hem": {case: dict(row) for case, row in report.hem.items()},
        "band": {case: dict(row) for case, row in report.band.items()},
        "mpi_percent": {name: gain.percent for name, gain in gains.items()},
        "mpi_excluded_clients": {name: gain.excluded for name, gain in gains.items()},
        "raw": {name: _raw_dict(figures) for name, figures in report.figures.items()},
        "flags": {name: list(flags) for name, flags in report.flags.items()},
        "intervals": _interval_dict(report),
        "rank_stability": {case: s and dataclasses.asdict(s) for case, s in report.stability.items()},
        "warnings": list(report.warnings),
    }


def _raw_dict(figures: Figures) -> dict[str, Any]:
    tree = dataclasses.asdict(figures)
    for key in ("tta", "full_time"):
        tree.update({f"{key}_{clock}": value for clock, value in tree.pop(key).items()})
    runs = {"runs": tree.pop("total"), "runs_reached": tree.pop("reached")}
    runs |= {f"runs_{key}": tree.pop(key) for key in ("censored", "unfinished", "diverged")}
    tree["rounds_between_evaluations"] = tree.pop("interval")
    tree["rounds_to_target_sustained"] = tree.pop("sustained")
    return {**tree, "reached": runs["runs_reached"] == runs["runs"], **runs}


def _interval_dict(report: HemReport) -> dict[str, Any]:
    return {
        "hem": {case: dict(row) for case, row in report.hem_intervals.items()},
        "components": {name: dict(row) for name, row in report.component_intervals.items()},
        "time_to_accuracy": {name: _times_dict(times) for name, times in report.times.items()},
        "time_ratio_to": report.reference,
        "time_ratio": {name: ratio and vars(ratio) for name, ratio in report.ratios.items()},
    }


def _times_dict(times: TimeToAccuracy) -> dict[str, Any]:
    """A single run has no interval, though its order statistics would make one, of coverage 0."""
    found = times.to_dict()
    return found if times.total > 1 else {**found, "order": {**found["order"], "ci": None, "coverage": None}}
