"""Selection, tables and job lists against what DomainBed itself gave."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fedhpc.report.domainbed import original_latex, original_tables, original_text
from fedhpc.report.names import ours
from fedhpc.report.original import read_original
from fedhpc.report.results import Figure
from fedhpc.report.selection import TrialRecords
from fedhpc.report.sweeps import SweepResults, results
from tests.golden.selection_cases import expectations, named, records_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "expected_file" in metafunc.fixturenames:
        files = expectations(metafunc.config.getoption("--vectors"))
        metafunc.parametrize("expected_file", files, ids=[f.stem for f in files])


def _close(got: float | None, wanted: float | None) -> bool:
    if got is None or wanted is None or math.isnan(got) or math.isnan(wanted):
        return str(got) == str(wanted)
    return abs(got - wanted) <= 1e-9


@pytest.fixture
def case(expected_file: Path) -> tuple[SweepResults, dict[str, Any]]:
    wanted = json.loads(expected_file.read_text(encoding="utf-8"))
    return results(records_of(expected_file), list(wanted["methods"]), compat=True), wanted


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
    case: tuple[SweepResults, dict[str, Any]], expected_file: Path
) -> None:
    found, wanted = case
    for name, method in wanted["methods"].items():
        assert found.criteria[name].title == method["name"]
        assert original_tables(found, name, latex=False) == method["text"]
        assert original_tables(found, name, latex=True) == method["latex"]
        assert method["latex"] in original_latex(found)
    whole = expected_file.with_suffix(".txt")
    if whole.exists():
        assert original_text(found) == whole.read_text(encoding="utf-8")


def test_the_order_of_folders_does_not_matter(case: tuple[SweepResults, dict[str, Any]]) -> None:
    found, _ = case
    turned = results(type(found.sweep)("turned", found.sweep.trials[::-1]), compat=True)
    for name in found.criteria:
        assert original_tables(turned, name, latex=False) == original_tables(found, name, latex=False)


def test_means_and_standard_errors(request: pytest.FixtureRequest) -> None:
    files = named(request.config.getoption("--vectors"), "format_mean.json")
    if not files:
        pytest.skip("no format_mean.json among the vectors")
    for case in json.loads(files[0].read_text(encoding="utf-8")):
        figure = Figure.of(case["data"])
        assert _close(figure.mean, case["mean"])
        assert _close(figure.standard_error, case["stderr"])


def test_the_shipped_sweep_is_read_by_the_importer(request: pytest.FixtureRequest) -> None:
    """Somebody else's data: read where it lies, never copied."""
    files = [f for f in expectations(request.config.getoption("--vectors")) if f.name.startswith("vlcs_erm")]
    if not files:
        pytest.skip("needs the shipped sweep of the shared vectors")
    sweep = read_original(files[0].with_name("vlcs_erm_sweep"))
    assert (len(sweep.trials), sweep.num_records, sweep.problems) == (40, 200, ())
    assert all(t.finished for t in sweep.trials)
    assert sweep.labels("vlcs") == ("C", "L", "S", "V")
