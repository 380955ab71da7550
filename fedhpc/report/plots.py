"""Accuracy against rounds and against time, as PNG and SVG.

Runs differ in colour, in dash and in marker, so that they can be told apart in grey too. More runs than a legend can
name are drawn by kind, such as all seeds of one algorithm, and, of too many kinds, without names.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedhpc.report.collect import RunSummary
from fedhpc.report.drawing import COLOURS, GRID, new_figure, style, written
from fedhpc.report.tally import Evaluation

_DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
_MARKERS = "osD^vPX"
_TIMES = ((3 * 3600.0, 3600.0, "h"), (600.0, 60.0, "min"), (0.0, 1.0, "s"))
_LONGEST = 40
_MOST_TARGETS = 3
_MOST_LINES = 12
"""Lines that a legend names."""
_SHORT = 24
"""Letters of a name in the legend; each letter more widens the figure, not to take its place from the axes."""
_KINDS = (
    ("algorithm", "objective", "model", "dataset", "partition", "lr", "clients"),
    ("algorithm", "objective"),
    ("algorithm",),
)
"""What makes runs of a kind, the finest first."""


def accuracy_plots(runs: Sequence[RunSummary]) -> dict[str, bytes]:
    """Draw the runs; returns file names and contents, the same bytes for the same runs and matplotlib."""
    files: dict[str, bytes] = {}
    with style(GRID):
        for name, against_time in (("accuracy_rounds", False), ("accuracy_seconds", True)):
            files |= written(name, _figure(runs, against_time))
    return files


def _figure(runs: Sequence[RunSummary], against_time: bool) -> Figure:
    several = len(runs) > 1
    colours, lines = _lines(runs)
    longer = max(0, max(len(label) for label, _ in lines) - _SHORT)
    size = (8.4 + 0.075 * longer, max(4.2, 0.21 * len(lines) + 0.6)) if several else (6.4, 4.2)
    figure = new_figure(*size)
    axes = figure.add_subplot()
    scale, unit = _time_unit(runs) if against_time else (1.0, "")
    if not several:
        _draw_clients(axes, *_points(runs[0], against_time, scale))
    for number, (label, same) in enumerate(lines):
        for place, run in enumerate(same):
            name = "mean" if not several else label if place == 0 else ""
            _draw_mean(axes, number, *_points(run, against_time, scale), name, light=len(lines) < len(runs))
    _draw_targets(axes, runs)
    if not several:
        _draw_reached(axes, runs[0], against_time, scale)
    longest = max((x for run in runs for x in _points(run, against_time, scale)[0]), default=None)
    _dress(axes, against_time, unit, several, longest)
    if len(lines) < len(runs):
        by = f", coloured by {colours}" if colours else ""
        title = textwrap.fill(f"{len(runs)} runs{by}; the table names them", 64)
        axes.set_title(title, fontsize=9, loc="left")
    if not several:
        axes.set_title(_label(runs[0]), fontsize=10, loc="left")
        axes.legend(loc="lower right", framealpha=0.9, edgecolor="none", fontsize=9)
    elif lines[0][0]:
        figure.legend(
            *axes.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9, handlelength=3.4
        )
    return figure


def _lines(runs: Sequence[RunSummary]) -> tuple[str, Sequence[tuple[str, Sequence[RunSummary]]]]:
    """What the colours are by, and the runs of each colour with their name in the legend.

    More runs than a legend can name are put together by kind; of too many kinds all are without a name.
    """
    if len(runs) <= _MOST_LINES:
        return "", [(_label(run), [run]) for run in runs]
    for names in _KINDS:
        kinds: dict[tuple[object, ...], list[RunSummary]] = {}
        for run in runs:
            kinds.setdefault(tuple(getattr(run, name) for name in names), []).append(run)
        if len(kinds) <= _MOST_LINES:
            varied = [i for i in range(len(names)) if len({kind[i] for kind in kinds}) > 1] or [0]
            words = (", ".join(_word(names[i], kind[i]) for i in varied) for kind in kinds)
            found = [
                (f"{word} ({len(same)} run{'s' if len(same) > 1 else ''})", same)
                for word, same in zip(words, kinds.values(), strict=True)
            ]
            return ", ".join(names[i] for i in varied), found
    return "", [("", runs)]


def _word(name: str, value: object) -> str:
    return f"{name} {value}" if name in ("lr", "clients") else str(value)


def _dress(axes: Axes, against_time: bool, unit: str, several: bool, longest: float | None) -> None:
    """Limits, ticks and names of the axes; `longest` is the last x there is, None if there is nothing to fit to."""
    axes.set_xlabel(f"Training time without evaluation ({unit})" if against_time else "Round")
    axes.set_ylabel("Mean client accuracy (%)" if several else "Client accuracy (%)")
    if not against_time:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if longest is None:
        axes.set_ylim(0, 101)
    axes.set_xlim(0, None if longest else 1)
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(0.0, bottom), min(101.0, top))


def _points(run: RunSummary, against_time: bool, scale: float) -> tuple[list[float], list[Evaluation]]:
    """Places on the x axis and the evaluations that have a mean."""
    points = [e for e in run.evaluations if e.mean is not None]
    return [e.seconds / scale if against_time else float(e.round) for e in points], points


def _time_unit(runs: Sequence[RunSummary]) -> tuple[float, str]:
    longest = max((e.seconds for run in runs for e in run.evaluations), default=0.0)
    return next((scale, unit) for least, scale, unit in _TIMES if longest >= least)


def _percent(points: Sequence[Evaluation], figure: str) -> list[float]:
    """One figure of the evaluations in percent; a gap where it is missing."""
    values = (getattr(e, figure) for e in points)
    return [math.nan if value is None else 100 * value for value in values]


def _draw_mean(
    axes: Axes, number: int, x: Sequence[float], points: Sequence[Evaluation], label: str, *, light: bool
) -> None:
    """One run; a light line where there are many, a label that is empty gives it no place in the legend."""
    axes.plot(
        x,
        _percent(points, "mean"),
        color=COLOURS[number % len(COLOURS)],
        linestyle=_DASHES[number // len(COLOURS) % len(_DASHES)],
        marker="" if light and len(points) > 1 else _MARKERS[number % len(_MARKERS)],
        markevery=(number % 3 * (len(points) // 24), max(1, len(points) // 8)),
        markersize=5,
        markeredgecolor="white",
        markeredgewidth=0.6,
        linewidth=0.9 if light else 1.8 if number < len(COLOURS) else 1.3,
        alpha=0.6 if light else None,
        zorder=3,
        label=label if points or not label else f"{label}: no accuracy recorded",
    )


def _draw_clients(axes: Axes, x: Sequence[float], points: Sequence[Evaluation]) -> None:
    """How the clients of one run spread around their mean."""
    if not points:
        return
    colour = COLOURS[0]
    low, high = _percent(points, "min"), _percent(points, "max")
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0, label="all clients (min to max)")
    if any(e.worst_decile is not None for e in points):
        axes.plot(
            x,
            _percent(points, "worst_decile"),
            color=COLOURS[1],
            linestyle=(0, (4, 2)),
            linewidth=1.3,
            label="worst tenth of the clients",
        )


def _draw_targets(axes: Axes, runs: Sequence[RunSummary]) -> None:
    targets = sorted({run.target_accuracy for run in runs if run.target_accuracy is not None})
    for target in targets if len(targets) <= _MOST_TARGETS else ():
        axes.axhline(100 * target, color="#555555", linestyle=(0, (2, 2)), linewidth=1, zorder=2)
        axes.annotate(
            f"target {100 * target:g} %", (0, 100 * target), xycoords=("axes fraction", "data"),
            xytext=(4, 3), textcoords="offset points", fontsize=8, color="#444444",
        )  # fmt: skip


def _draw_reached(axes: Axes, run: RunSummary, against_time: bool, scale: float) -> None:
    """A ring where the target was reached first."""
    reached = run.time_to_accuracy
    found = [e for e in run.evaluations if reached and e.round == reached["round"] and e.mean is not None]
    if found:
        x = found[0].seconds / scale if against_time else found[0].round
        words = f"{_seconds_in_words(found[0].seconds)}" if against_time else f"round {found[0].round}"
        axes.plot([x], _percent(found[:1], "mean"), marker="o", markersize=11, markerfacecolor="none",
                  markeredgecolor="#000000", linestyle="none", zorder=4, label=f"target reached: {words}")  # fmt: skip


def _seconds_in_words(seconds: float) -> str:
    scale, unit = next((scale, unit) for least, scale, unit in _TIMES if seconds >= least)
    return f"{seconds / scale:.3g} {unit}"


def _label(run: RunSummary) -> str:
    """The run's name, cut in the middle if long, and how it stands; a leading _ would hide it from the legend."""
    name = run.name if len(run.name) <= _LONGEST else f"{run.name[: _LONGEST // 2 - 1]}…{run.name[-_LONGEST // 2 :]}"
    name = f" {name}" if name.startswith("_") else name
    return name if run.status == "finished" else f"{name} ({run.status})"
