"""A sweep's tables as PNG and SVG: per dataset, accuracy on each test environment and their mean, by criterion."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from fedhpc.report.drawing import GRID, new_figure, style, written
from fedhpc.report.figures import Figure
from fedhpc.report.names import theirs
from fedhpc.report.results import Table
from fedhpc.report.sweeps import SweepResults

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000")
_MARKERS = "osDv^"
_STYLE: Any = {**GRID, "font.size": 9, "axes.spines.left": False, "axes.grid.axis": "x"}
_MOST_COLUMNS = 5
_SPREAD = 0.46
"""Height of a row's marks, as a share of the distance of two rows."""

Rows = Sequence[tuple[str, Sequence[Figure]]]
"""Name of an algorithm, and its figures: one per panel."""


def sweep_plots(found: SweepResults) -> dict[str, bytes]:
    """Draw every dataset and, of several, their averages; names and contents, the same bytes for the same results."""
    files: dict[str, bytes] = {}
    with style(_STYLE):
        tables = (table for of_criterion in found.tables.values() for table in of_criterion)
        for dataset, held_out in dict.fromkeys((table.dataset, table.held_out) for table in tables):
            safe = re.sub(r"[^A-Za-z0-9_-]", "_", "_".join([dataset, *map(str, held_out)]))
            files |= written(f"sweep_{safe}", _dataset_figure(found, dataset, held_out))
        if any(len(means.datasets) > 1 for means in found.averages.values()):
            files |= written("sweep_averages", _averages_figure(found))
    return files


def _dataset_figure(found: SweepResults, dataset: str, held_out: tuple[int, ...] = ()) -> Drawing:
    """One panel per test environment, and their mean; of one set of environments that are held out together, if any."""
    wanted = dataset, held_out
    tables = {name: t for name, of_name in found.tables.items() for t in of_name if (t.dataset, t.held_out) == wanted}
    panels = list(dict.fromkeys(label for t in tables.values() for label in t.environments))
    by_criterion = {name: _rows_of(table, panels) for name, table in tables.items()}
    titles = [f"test environment {label}" for label in panels] + ["mean"]
    together = f", {' + '.join(panels)} held out together" if held_out else ""
    return _panels(found, f"{theirs(dataset)}{together}: accuracy on the test environment", titles, by_criterion)


def _rows_of(table: Table, panels: Sequence[str]) -> list[tuple[str, list[Figure]]]:
    """The figures of a table in the order of the panels; of an environment that it lacks there is none."""
    nothing = Figure.of([])
    rows = []
    for row in table.rows:
        cells = {label: c.figure for label, c in zip(table.environments, row.cells, strict=True)}
        rows.append((row.algorithm, [*(cells.get(label, nothing) for label in panels), row.figure]))
    return rows


def _averages_figure(found: SweepResults) -> Drawing:
    """One panel per dataset, and their mean."""
    datasets = list(dict.fromkeys(d for means in found.averages.values() for d in means.datasets))
    by_criterion: dict[str, Rows] = {}
    for name, means in found.averages.items():
        rows = []
        for algorithm, figures in means.rows:
            cells = dict(zip(means.datasets, figures, strict=True))
            mean = means.mean(figures)
            whole = Figure(mean, 0.0, 1) if mean is not None else Figure.of([])
            rows.append((algorithm, [*(cells.get(d, Figure.of([])) for d in datasets), whole]))
        by_criterion[name] = rows
    return _panels(found, "Average accuracy over test environments", [*map(theirs, datasets), "mean"], by_criterion)


def _panels(found: SweepResults, title: str, titles: Sequence[str], by_criterion: Mapping[str, Rows]) -> Drawing:
    algorithms = list(dict.fromkeys(name for rows in by_criterion.values() for name, _ in rows))
    columns = min(_MOST_COLUMNS, len(titles))
    lines = math.ceil(len(titles) / columns)
    height = 1.0 + lines * (0.62 + 0.30 * len(algorithms))
    figure = new_figure(1.5 + 2.3 * columns, height)
    grid = figure.subplots(lines, columns, squeeze=False, sharey=True)
    for number, axes in enumerate(grid.flat):
        if number >= len(titles):
            axes.set_visible(False)
            continue
        for place, rows in enumerate(by_criterion.values()):
            offset = _SPREAD * (place / max(len(by_criterion) - 1, 1) - 0.5) if len(by_criterion) > 1 else 0.0
            _draw(axes, algorithms, {a: figures[number] for a, figures in rows}, place, offset)
        _dress(axes, algorithms, titles[number])
    for line in grid:
        line[0].set_yticks(range(len(algorithms)), [theirs(a) for a in algorithms])
    several = any(f.num_trials > 1 for rows in by_criterion.values() for _, figures in rows for f in figures)
    errors = "bar: ± standard error over trials" if several else "one trial: no standard error"
    figure.suptitle(f"{title} (%, {errors})", fontsize=10, x=0.01, ha="left")
    handles = [
        mpl.lines.Line2D(
            [], [], color=_COLOURS[i % len(_COLOURS)], marker=_MARKERS[i % len(_MARKERS)], linestyle="none"
        )
        for i in range(len(by_criterion))
    ]
    labels = [found.criteria[name].title for name in by_criterion]
    figure.legend(handles, labels, loc="outside lower left", ncols=len(labels), frameon=False, fontsize=8)
    return figure


def _draw(axes: Axes, algorithms: Sequence[str], figures: dict[str, Figure], place: int, offset: float) -> None:
    """One criterion's marks in one panel; what has no value has no mark."""
    known = [(i, f) for i, a in enumerate(algorithms) if (f := figures.get(a)) is not None and f.mean is not None]
    axes.errorbar(
        [f.mean or 0.0 for _, f in known],
        [i + offset for i, _ in known],
        xerr=[f.standard_error or 0.0 for _, f in known],
        color=_COLOURS[place % len(_COLOURS)],
        marker=_MARKERS[place % len(_MARKERS)],
        markersize=4.2,
        markeredgecolor="white",
        markeredgewidth=0.5,
        elinewidth=1.0,
        linestyle="none",
        zorder=3,
    )


def _dress(axes: Axes, algorithms: Sequence[str], title: str) -> None:
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_ylim(len(algorithms) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    for between in range(1, len(algorithms)):
        axes.axhline(between - 0.5, color="#EEEEEE", linewidth=0.8, zorder=0)
    left, right = axes.get_xlim()
    if right - left < 2:  # a panel of nearly equal values should not look like one of differences
        middle = (left + right) / 2
        axes.set_xlim(middle - 1, middle + 1)
