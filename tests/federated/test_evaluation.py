"""Figures over clients: unweighted, in the order of ids, whatever rank counted them."""

from __future__ import annotations

import numpy as np
import pytest

from fedhpc.federated.evaluation import AccuracySummary, summarize
from fedhpc.train.evaluate import Counts


def counts(*pairs: tuple[int, int]) -> list[tuple[int, Counts]]:
    return [(client, Counts(correct, total, 0.5 * total)) for client, (correct, total) in enumerate(pairs)]


def test_the_mean_does_not_weigh_by_test_samples() -> None:
    summary = summarize(counts((1, 1), (0, 99)))
    assert summary.mean == 0.5
    assert summary.accuracies == (1.0, 0.0)
    assert (summary.min, summary.max, summary.std) == (0.0, 1.0, 0.5)


def test_every_figure_comes_from_the_listed_accuracies() -> None:
    rng = np.random.default_rng(0)
    found = counts(*((int(c), 20) for c in rng.integers(0, 21, 37)))
    summary = summarize(found)
    values = np.array(summary.accuracies)
    assert summary.mean == pytest.approx(values.mean())
    assert summary.std == pytest.approx(values.std())
    assert summary.worst_decile == pytest.approx(np.sort(values)[:3].mean())
    assert (summary.min, summary.max) == (values.min(), values.max())
    assert summary.loss == pytest.approx(0.5)


def test_ranks_may_report_in_any_order() -> None:
    found = counts((1, 3), (2, 3), (2, 7))
    assert summarize(found[::-1]) == summarize(found)
    assert summarize(found[::-1]).clients == (0, 1, 2)


def test_worst_decile_of_few_clients_is_the_worst() -> None:
    assert summarize(counts((3, 4), (1, 4))).worst_decile == 0.25


def test_clients_without_test_samples_are_left_out() -> None:
    summary = summarize(counts((3, 4), (0, 0), (1, 4)))
    assert summary.clients == (0, 2)
    assert summary.mean == 0.5


def test_nothing_tested_is_not_a_number_and_reaches_nothing() -> None:
    summary = summarize(counts((0, 0), (0, 0)))
    assert summary.clients == summary.accuracies == ()
    assert np.isnan([summary.mean, summary.min, summary.max, summary.worst_decile, summary.std, summary.loss]).all()
    assert not summary.reaches(0.0)


@pytest.mark.parametrize(
    ("mean", "target", "reached"),
    [(0.8, 0.8, True), (0.1 * 8 - 1e-15, 0.8, True), (0.79999, 0.8, False), (0.9, None, False), (0.9, 0.8, True)],
)
def test_target(mean: float, target: float | None, reached: bool) -> None:
    assert AccuracySummary((0,), (mean,), mean, mean, mean, mean, 0.0, 0.0).reaches(target) is reached
