"""Selection, tables and job lists against what DomainBed itself gave."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fedhpc.report.domainbed import original_figure, original_latex, original_tables, original_text
from fedhpc.report.figures import Figure
from fedhpc.report.names import ENVIRONMENTS, ours
from fedhpc.report.selection import TrialRecords
from fedhpc.report.sweeps import SweepResults, results
from tests.golden.domainbed_cases import Case, parametrize
from tests.golden.selection_cases import records_of, sweeps_below, text_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc)


def _close(got: float | None, wanted: float | None) -> bool:
    if got is None or wanted is None or math.isnan(got) or math.isnan(wanted):
        return str(got) == str(wanted)
    return abs(got - wanted) <= 1e-9


@pytest.fixture
def case(selection_case: Case) -> tuple[SweepResults, dict[str, Any]]:
    wanted = selection_case.facts
    return results(records_of(selection_case), list(wanted["methods"]), compat=True), wanted


def test_all_records_are_read(case: tuple[SweepResults, dict[str, Any]]) -> None:
    found, wanted = case
    assert found.sweep.num_records == wanted["total_records"]
    assert len(found.sweep.trials) == wanted["total_runs"]


def test_candidates_rank_as_in_the_original(case: tuple[SweepResults, dict[str, Any]]) -> None:
    found, wanted = case
    for name, method in wanted["methods"].items():
        for group in method["groups"]:
            key = (ours(group["dataset"]), ours(group["algorithm"]), group["trial_seed"])
            ranking = found.criteria[name].rank(_trials(found, *key), group["test_env"])
            assert [(c.hparams_seed, c.step) for c in ranking] == [
                (c["hparams_seed"], c["step"]) for c in group["ranking"]
            ], (name, group)
            for got, want in zip(ranking, group["ranking"], strict=True):
                assert _close(got.validation, want["val_acc"])
                assert _close(got.test, want["test_acc"])
            assert _close(ranking[0].test if ranking else None, group["sweep_acc"])


def _trials(found: SweepResults, dataset: str, algorithm: str, seed: int) -> list[TrialRecords]:
    return [t for t in found.sweep.trials if (t.dataset, t.algorithm, t.trial_seed) == (dataset, algorithm, seed)]


def test_tables_have_the_original_numbers(case: tuple[SweepResults, dict[str, Any]]) -> None:
    found, wanted = case
    for name, method in wanted["methods"].items():
        for table in found.tables[name]:
            want = {ours(a): row for a, row in _of(method["per_dataset"], table.dataset).items()}
            assert {row.algorithm for row in table.rows} == set(want)
            for row in table.rows:
                for cell, cell_wanted in zip(row.cells, want[row.algorithm]["cells"], strict=True):
                    assert cell.figure.num_trials == cell_wanted["n_trials"]
                    assert _close(cell.figure.mean, cell_wanted["mean"])
                    assert _close(cell.figure.standard_error, cell_wanted["stderr"])
                assert _close(row.mean, want[row.algorithm]["avg"])
        means = found.averages[name]
        for algorithm, figures in means.rows:
            row_wanted = {ours(a): row for a, row in method["averages"].items()}[algorithm]
            assert [f.num_trials for f in figures] == [c["n_trials"] for c in row_wanted["cells"]]
            assert all(_close(f.mean, c["mean"]) for f, c in zip(figures, row_wanted["cells"], strict=True))
            assert all(_close(f.standard_error, c["stderr"]) for f, c in zip(figures, row_wanted["cells"], strict=True))
            assert _close(means.mean(figures), row_wanted["avg"])


def _of(table: dict[str, Any], dataset: str) -> dict[str, Any]:
    return {ours(name): value for name, value in table.items()}[dataset]


def test_text_and_latex_are_the_original_to_the_letter(
    case: tuple[SweepResults, dict[str, Any]], selection_case: Case
) -> None:
    found, wanted = case
    for name, method in wanted["methods"].items():
        assert found.criteria[name].title == method["name"]
        assert original_tables(found, name, latex=False) == method["text"]
        assert original_tables(found, name, latex=True) == method["latex"]
        assert method["latex"] in original_latex(found)
    whole = text_of(selection_case, ".txt")
    assert whole in (None, original_text(found))
    tables = text_of(selection_case, ".tex")
    assert tables in (None, "".join(original_tables(found, name, latex=True) for name in found.criteria))


def test_the_order_of_folders_does_not_matter(case: tuple[SweepResults, dict[str, Any]]) -> None:
    found, _ = case
    turned = results(type(found.sweep)("turned", found.sweep.trials[::-1]), compat=True)
    for name in found.criteria:
        assert original_tables(turned, name, latex=False) == original_tables(found, name, latex=False)


def test_means_and_standard_errors(format_mean_case: Case) -> None:
    for case in format_mean_case.facts:
        figure = Figure.of(case["data"])
        assert _close(figure.mean, case["mean"])
        assert _close(figure.standard_error, case["stderr"])
        assert original_figure(figure, latex=False) == case["text"]
        assert original_figure(figure, latex=True) == case["latex"]


def test_a_sweep_of_the_original_is_read_whole(selection_case: Case) -> None:
    """Somebody else's data among them: read where it lies, never copied."""
    for folder, sweep in sweeps_below(selection_case.root):
        if not folder.is_dir():
            continue
        assert sweep.problems == ()
        assert {t.run for t in sweep.trials if t.finished} == {f.parent.name for f in folder.glob("*/done")}
        for dataset in sweep.datasets():
            assert sweep.labels(dataset) == ENVIRONMENTS.get(dataset, sweep.labels(dataset))
