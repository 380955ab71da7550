"""Plots of a sweep's tables: one mark for each figure, none where nothing is known, always the same bytes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.container import ErrorbarContainer

from fedhpc.report.original import read_original
from fedhpc.report.sweep_plots import _averages_figure, _dataset_figure, sweep_plots
from fedhpc.report.sweeps import SweepResults, results
from tests.report.test_sweep_report import write_original


@pytest.fixture
def found(tmp_path: Path) -> SweepResults:
    without = tuple(f"2-h{seed}-t{trial}" for seed in range(2) for trial in range(2))
    return results(read_original(write_original(tmp_path, without)))


def marks(panel: object) -> list[tuple[float, float]]:
    """Accuracy and standard error of each criterion's mark in a panel; NaN where there is none."""
    bars = [c for c in panel.containers if isinstance(c, ErrorbarContainer)]  # type: ignore[attr-defined]
    shown = []
    for bar in bars:
        x = bar.lines[0].get_xdata()
        ends = bar.lines[2][0].get_segments()
        shown.append((x[0], (ends[0][1][0] - ends[0][0][0]) / 2) if len(x) else (math.nan, math.nan))
    return shown


def test_every_figure_has_its_mark_and_no_other(found: SweepResults) -> None:
    panels = _dataset_figure(found, "Made_Up").axes
    assert [p.get_title(loc="left") for p in panels] == [*(f"test environment {i}" for i in range(3)), "mean"]
    for panel in panels[:2]:
        assert marks(panel) == [pytest.approx((60.5, 0.5 / 2**0.5))] * 3
    for panel in panels[2:]:
        assert all(math.isnan(x) for x, _ in marks(panel)), "the runs that hold environment 2 out are not there"


def test_the_title_says_what_a_bar_is(found: SweepResults) -> None:
    def title(results_of: SweepResults) -> str:
        return _dataset_figure(results_of, "Made_Up").get_suptitle()

    alone = replace(found.sweep, trials=tuple(t for t in found.sweep.trials if t.trial_seed == 0))
    assert "(%, bar: ± standard error over trials)" in title(found)
    assert "(%, one trial: no standard error)" in title(results(alone))


def test_files_repeat_and_are_named_after_the_datasets(found: SweepResults) -> None:
    files = sweep_plots(found)
    assert sorted(files) == ["sweep_Made_Up.png", "sweep_Made_Up.svg"]
    assert files["sweep_Made_Up.png"].startswith(b"\x89PNG")
    assert sweep_plots(found) == files


def test_averages_have_a_panel_for_each_dataset(found: SweepResults) -> None:
    titles = [p.get_title(loc="left") for p in _averages_figure(found).axes]
    assert titles == ["Made_Up", "mean"]
