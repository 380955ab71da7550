"""Figures of medical studies: scenarios, scores over tasks, hold-out bars, a new disease, contrast."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedhpc.report.drawing import COLOURS, new_figure, style, written
from fedhpc.report.ltr import cohens_d, confidence_interval
from fedhpc.report.medical import MedicalRun, mean_over
from fedhpc.report.medical_groups import by_title

_MARKERS = "osD^vPX*"
_DASHES = ("-", "--", ":", "-.")
_MOST_BARS = 400
_MARGIN = 15.0
"""Percent that an axis shows beyond the means."""
_UPRIGHT = 6
"""Most clients whose names stand upright below their bars."""


def medical_plots(runs: Sequence[MedicalRun]) -> dict[str, bytes]:
    """The paper's figures 2, 3, 4 and 6, as far as there are records for them; names and contents of files."""
    files: dict[str, bytes] = {}
    several = by_title(runs)
    wider, higher = _beside(list(several))
    bars = (max(5.2, 0.32 * len(several) + 1.5), 3.2 + 0.7 * wider)
    if any(np.isfinite(run.cumulative()).any() for run in runs):
        files |= _drawn("medical_tasks", lambda figure: _tasks(figure, several), (5.2 + wider, max(3.6, higher)))
    for score, name in (("ltr", "medical_holdout_ltr"), ("auc", "medical_holdout_auc")):
        if any(np.isfinite(run.final_holdout(score)) for run in runs):
            files |= _drawn(name, partial(_bars, several=several, score=score), bars)
    if any(run.novel_curves() for run in runs):
        files |= _drawn("medical_novel", lambda figure: _novel(figure, several), (8.0 + wider, max(3.4, higher)))
    return files


def _beside(titles: Sequence[str]) -> tuple[float, float]:
    """Inches that a legend needs beyond one of short names, and in all: width, height."""
    return 0.065 * max(0, max(map(len, titles), default=0) - 10), 0.2 * len(titles) + 0.6


def scenario_plots(tree: Mapping[str, Any]) -> dict[str, bytes]:
    """Groups and classes of every client's training tasks as stacked bars."""
    rows = [row for row in tree["rows"] if row["part"] == "train"][:_MOST_BARS]
    size = (max(4.0, 0.22 * len(rows) + 1.5), 5.6)
    return _drawn("scenario", lambda figure: _scenario(figure, tree, rows), size)


def contrast_plot(contrasts: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, bytes]:
    """Densities of the contrast in each group of each dataset (figure 5), with Cohen's d of two groups."""
    return _drawn("contrast", lambda figure: _contrast(figure, contrasts), (4.2 * len(contrasts), 3.2))


def _drawn(name: str, draw: Callable[[Figure], None], size: tuple[float, float]) -> dict[str, bytes]:
    with style({"font.size": 9}):
        figure = new_figure(*size)
        draw(figure)
        return written(name, figure)


def _line(axes: Axes, number: int, title: str, rows: Sequence[np.ndarray]) -> None:
    """A recipe's mean over seeds at each task, and its confidence interval."""
    points = [confidence_interval([float(row[t]) for row in rows]) for t in range(max(map(len, rows)))]
    x = np.arange(1, len(points) + 1)
    mean, low, high = (100 * np.array(values) for values in zip(*points, strict=True))
    colour = COLOURS[number % len(COLOURS)]
    marker, dashes = _MARKERS[number % len(_MARKERS)], _DASHES[number // len(COLOURS) % len(_DASHES)]
    axes.plot(x, mean, color=colour, marker=marker, markersize=4, linewidth=1.5, linestyle=dashes, label=title)
    if np.isfinite(low).any():  # of few seeds so wide that areas would cover one another
        axes.errorbar(x + 0.02 * number, mean, high - mean, fmt="none", ecolor=colour, elinewidth=0.8, alpha=0.45)


def _spread(axes: Axes, number: int, models: Sequence[np.ndarray]) -> None:
    """Bars of the standard deviation over the clients' models, its mean over seeds; none for a common model."""
    if all(len(of_run) < 2 for of_run in models):
        return
    x = np.arange(1, models[0].shape[1] + 1) + 0.03 * number
    mean = 100 * mean_over([mean_over(list(of_run)) for of_run in models])
    spread = 100 * mean_over([of_run.std(0) for of_run in models])
    colour = COLOURS[number % len(COLOURS)]
    axes.errorbar(x, mean, spread, fmt="none", ecolor=colour, elinewidth=0.9, capsize=2.5, alpha=0.8)


def _tasks(figure: Figure, several: Mapping[str, Sequence[MedicalRun]]) -> None:
    axes = figure.add_subplot()
    for number, (title, runs) in enumerate(several.items()):
        rows = [row for run in runs if len(row := run.cumulative())]
        if rows:
            _line(axes, number, title, rows)
    _whole_tasks(axes)
    axes.set_ylabel("Cumulative LTR accuracy (%)")
    figure.legend(loc="outside right upper", frameon=False)


def _bars(figure: Figure, several: Mapping[str, Sequence[MedicalRun]], score: str) -> None:
    axes = figure.add_subplot()
    for number, (_, runs) in enumerate(several.items()):
        mean, low, high = confidence_interval([run.final_holdout(score) for run in runs])
        if np.isfinite(mean):
            error = [[100 * (mean - low)], [100 * (high - mean)]] if np.isfinite(low) else None
            axes.bar(number, 100 * mean, color=COLOURS[number % len(COLOURS)], yerr=error, capsize=3,
                     error_kw={"elinewidth": 0.9, "ecolor": "#444444"})  # fmt: skip
    axes.set_ylim(0, min(101.0, axes.get_ylim()[1]))  # an interval of few seeds may leave what is possible
    axes.set_xticks(range(len(several)), list(several), rotation=35, ha="right")
    axes.set_ylabel(f"Hold-out {score.upper()}{' accuracy' if score == 'ltr' else ''} (%)")


def _novel(figure: Figure, several: Mapping[str, Sequence[MedicalRun]]) -> None:
    known, new = figure.subplots(1, 2, sharey=True)
    for number, (title, runs) in enumerate(several.items()):
        curves = [found for run in runs if (found := run.novel_curves()) is not None]
        if curves:
            for which, axes, label in ((0, known, title), (1, new, "_")):
                _line(axes, number, label, [mean_over(list(both[which])) for both in curves])
                _spread(axes, number, [both[which] for both in curves])
    for axes, title in ((known, "Known classes"), (new, "New class")):
        axes.set_title(title, loc="left", fontsize=10)
        _whole_tasks(axes)
    known.set_ylabel("Hold-out accuracy (%)")
    figure.supxlabel("bars with caps: standard deviation over clients; without: 95 % interval over seeds", fontsize=7)
    figure.legend(*known.get_legend_handles_labels(), loc="outside right upper", frameon=False)


def _whole_tasks(axes: Axes) -> None:
    axes.set_xlabel("Task")
    ticks = max((len(line.get_xdata()) for line in axes.get_lines()), default=1)  # type: ignore[arg-type]
    axes.set_xticks(range(1, ticks + 1))
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    low, high = axes.get_ylim()
    panels = axes.get_shared_y_axes().get_siblings(axes)
    lines = [np.asarray(line.get_ydata(), dtype=float) for panel in panels for line in panel.get_lines()]
    values = np.concatenate([np.zeros(0), *lines])
    values = values[np.isfinite(values)]
    if len(values):  # the means decide, not the ends of wide intervals
        low, high = max(low, values.min() - _MARGIN), min(high, values.max() + _MARGIN)
    axes.set_ylim(max(0.0, low), min(101.0, high))


def _scenario(figure: Figure, tree: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    panels = figure.subplots(2, 1, sharex=True)
    for axes, key, names in ((panels[0], "per_group", tree["groups"]), (panels[1], "per_class", tree["classes"])):
        bottom = np.zeros(len(rows))
        for number, name in enumerate(names):
            heights = np.array([row[key][number] for row in rows])
            hatch = "////" * (number // len(COLOURS)) or None
            axes.bar(range(len(rows)), heights, bottom=bottom, color=COLOURS[number % len(COLOURS)], hatch=hatch,
                     label=str(name), width=0.85)  # fmt: skip
            bottom += heights
        axes.set_ylabel("Training samples")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
    starts = [i for i, row in enumerate(rows) if row["task"] == 0]
    for start in starts[1:]:
        for axes in panels:
            axes.axvline(start - 0.5, color="#999999", linewidth=0.6)
    names = [f"client {rows[i]['client']}\n{rows[i]['kind']}" for i in starts]
    middles = [(a + b - 1) / 2 for a, b in zip(starts, [*starts[1:], len(rows)], strict=True)]
    turned: dict[str, Any] = {} if len(starts) <= _UPRIGHT else {"rotation": 60, "ha": "right"}
    panels[1].set_xticks(middles, names, fontsize=7, **turned)
    more = sum(row["part"] == "train" for row in tree["rows"]) - len(rows)
    left_out = f" ({more} more tasks are not shown)" if more else ""
    panels[0].set_title(f"Tasks of each client, from left to right{left_out}", loc="left", fontsize=10)


def _contrast(figure: Figure, contrasts: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    panels = figure.subplots(1, len(contrasts), squeeze=False)[0]
    for axes, (dataset, groups) in zip(panels, contrasts.items(), strict=True):
        everything = [v for values in groups.values() for v in values]
        edges = np.histogram_bin_edges(np.array(everything), bins=min(40, max(5, len(everything) // 20)))
        for number, (name, values) in enumerate(groups.items()):
            if not len(values):
                continue
            colour, dashes = COLOURS[number % len(COLOURS)], _DASHES[number // len(COLOURS) % len(_DASHES)]
            axes.hist(values, edges, density=True, histtype="step", linewidth=1.5, color=colour, linestyle=dashes,
                      label=name)  # fmt: skip
        effect = ""
        if len(groups) == 2:
            first, second = groups.values()
            effect = f", |d| = {abs(cohens_d(first, second)):.2f}"
        axes.set_title(f"{dataset}{effect}", loc="left", fontsize=10)
        axes.set_xlabel("Contrast")
        if everything:
            axes.legend(frameon=False, fontsize=8)
    panels[0].set_ylabel("Density")
