"""HEM per use case as PNG and SVG: what each component contributes, in which band it ends, how sure it is."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedhpc.report._hem_index import COMPONENTS
from fedhpc.report.drawing import new_figure, style, written
from fedhpc.report.hem import HemReport
from fedhpc.report.hem_tables import TITLES

_COLOURS = ("#0072B2", "#56B4E9", "#E69F00", "#B9B9B9")
_LONGEST = 40


def hem_plots(report: HemReport) -> dict[str, bytes]:
    """Draw one figure per use case; returns file names and contents, the same bytes for the same report."""
    files: dict[str, bytes] = {}
    with style({"axes.spines.left": False}):
        for case in report.hem:
            safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in case)
            files |= written(f"hem_{safe}", _figure(report, case))
    return files


def _figure(report: HemReport, case: str) -> Figure:
    """Bars from the best to the worst; algorithms without a HEM come last, as words."""
    values = report.hem[case]
    names = sorted(report.algorithms, key=lambda name: -1.0 if (v := values[name]) is None else v)
    figure = new_figure(8.4, 1.7 + 0.36 * len(names))
    axes = figure.add_subplot()
    _draw_bands(axes, report)
    _draw_bars(axes, report, case, names)
    for place, name in enumerate(names):
        _draw_value(axes, report, case, name, place)
    axes.set_yticks(range(len(names)), [_short(name) for name in names])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlim(0, 1)
    axes.set_xlabel(f"HEM, {TITLES.get(case, case)}{_interval_words(report, case)}")
    figure.legend(
        loc="outside upper center",
        ncols=len(COMPONENTS),
        frameon=False,
        fontsize=9,
        handlelength=1.2,
        columnspacing=1.6,
    )
    return figure


def _interval_words(report: HemReport, case: str) -> str:
    """What the black bars are, where there are some."""
    if not any(report.hem_intervals.get(case, {}).values()):
        return ""
    return f" (black bar: {100 * report.options.level:g} % of bootstrap resamples of {len(report.seeds)} seeds)"


def _draw_bands(axes: Axes, report: HemReport) -> None:
    """A line where a band begins, its name above the bars."""
    bands = sorted(report.options.importances.bands, key=lambda band: band.least)
    ends = [*(band.least for band in bands[1:]), 1.0]
    for band, end in zip(bands, ends, strict=True):
        if 0 < band.least < 1:
            axes.axvline(band.least, color="#666666", linewidth=0.8, linestyle=(0, (3, 2)), zorder=0)
        if 0 <= band.least < end <= 1:
            axes.annotate(
                band.name, ((band.least + end) / 2, 1), xycoords=("data", "axes fraction"), xytext=(0, 3),
                textcoords="offset points", ha="center", va="bottom", fontsize=8, color="#444444",
            )  # fmt: skip


def _draw_bars(axes: Axes, report: HemReport, case: str, names: list[str]) -> None:
    weights = report.options.importances.use_cases[case]
    total = sum(weights.values())
    left = [0.0] * len(names)
    for component, colour in zip(COMPONENTS, _COLOURS, strict=True):
        widths = [
            weights[component] / total * (report.components[name][component] or 0.0)
            if report.hem[case][name] is not None
            else 0.0
            for name in names
        ]
        axes.barh(
            range(len(names)), widths, left=left, height=0.66, color=colour, edgecolor="white", linewidth=0.6,
            label=f"{component} ({weights[component]:g}/{total:g})",
        )  # fmt: skip
        left = [start + width for start, width in zip(left, widths, strict=True)]


def _draw_value(axes: Axes, report: HemReport, case: str, name: str, place: int) -> None:
    """The number, and the interval where there is one; for a HEM that is not defined, why."""
    value = report.hem[case][name]
    if value is None:
        why = ", ".join(report.flags[name]) or "an index is missing"
        axes.annotate(f"not defined: {why}", (0, place), xytext=(4, 0), textcoords="offset points", va="center",
                      fontsize=8, color="#444444")  # fmt: skip
        return
    end = value
    interval = report.hem_intervals.get(case, {}).get(name)
    if interval:
        low, high = interval
        axes.plot([low, high], [place, place], color="black", linewidth=1.2, marker="|", markersize=7, zorder=4)
        end = max(value, high)
    axes.annotate(
        f"{value:.3f}", (end, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8}, annotation_clip=False,
    )  # fmt: skip


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2 - 1]}…{name[-_LONGEST // 2 :]}"
