"""Known answers for HEM and for intervals of times to accuracy, from whatever files of that form a folder holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedhpc.errors import ConfigError
from fedhpc.report._hem_index import band as band_of
from fedhpc.report._hem_index import hem as hem_of
from fedhpc.report.hem import HemOptions, Importances, IndexTable, judge
from fedhpc.report.hem_inputs import parse_input
from fedhpc.report.hem_tables import to_dict
from fedhpc.report.timing import log_interval, olympic_mean, order_coverage, order_interval, paired_ratio
from tests.golden.folders import vector_folder

FIGURE = Importances().with_weight("smartphone", "fairness", 1)
MINMAX = HemOptions(computation="minmax")
ALL_CLOCK = HemOptions(clock="all")


def _files(folder: Path) -> dict[str, Any]:
    found = {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    return {name: tree for name, tree in found.items() if isinstance(tree, dict)}


def _is_hem(case: Any) -> bool:
    return isinstance(case, dict) and isinstance(case.get("input"), dict) and "algorithms" in case["input"]


def _hem_files(folder: Path) -> dict[str, Any]:
    return {
        name: tree
        for name, tree in _files(folder).items()
        if "table_iii" in tree or (isinstance(tree.get("cases"), list) and any(map(_is_hem, tree["cases"])))
    }


def _items(folder: Path, kind: str) -> list[tuple[str, Any]]:
    if kind == "tta":
        return [(name, tree) for name, tree in _files(folder).items() if "tta_a" in tree]
    key = {"hem_case": "cases", "table": "table_iii", "border": "bands", "must_raise": "must_raise"}[kind]
    return [
        (f"{item.get('id', item.get('algorithm', number))}", item)
        for tree in _hem_files(folder).values()
        for number, item in enumerate(tree.get(key, []))
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    folder = vector_folder(metafunc.config, "federated")
    for kind in ("hem_case", "table", "border", "must_raise", "tta"):
        if kind in metafunc.fixturenames:
            items = _items(folder, kind)
            metafunc.parametrize(kind, [item for _, item in items], ids=[name for name, _ in items])


def near(expected: Any) -> Any:
    return expected if expected is None else pytest.approx(expected, rel=0, abs=1e-12)


RAW = (
    "client_accuracy", "entropy", "entropy_normalised", "reached", "rounds_to_target", "convergence",
    "tta_train", "full_time_train", "tta_all", "full_time_all",
)  # fmt: skip
SWITCHES = {
    "computation": HemOptions(),
    "computation_train": HemOptions(),
    "computation_minmax_train": MINMAX,
    "computation_all": ALL_CLOCK,
    "computation_minmax_all": replace(MINMAX, clock="all"),
}
FAIRNESS = {"fairness": HemOptions(), "fairness_linear": HemOptions(fairness="linear")}
HEMS = {
    "hem": HemOptions(),
    "hem_alt_minmax_linear": replace(MINMAX, fairness="linear"),
    "hem_figure_weights": HemOptions(importances=FIGURE),
}


def test_raw_quantities_flags_and_mpi(hem_case):
    found = to_dict(judge(parse_input(hem_case["input"])))
    for name, expected in hem_case["expected"].items():
        raw = found["raw"][name]
        for key in RAW:
            assert raw[key] == near(expected[key]), (name, key)
        assert list(raw["curve"]) == [near(mean) for mean in expected["curve"]], name
        assert found["flags"][name] == expected["flags"], name
        assert found["mpi_percent"].get(name) == near(expected.get("mpi_percent")), name
        assert found["mpi_excluded_clients"].get(name) == expected.get("mpi_excluded_clients"), name


def test_indices_under_every_switch(hem_case):
    comparison = parse_input(hem_case["input"])
    for component, switches in (("computation", SWITCHES), ("fairness", FAIRNESS)):
        for key, options in switches.items():
            components = judge(comparison, options).components
            for name, expected in hem_case["expected"].items():
                assert components[name][component] == near(expected[key]), (name, key)


def test_hem_and_bands(hem_case):
    comparison = parse_input(hem_case["input"])
    for key, options in HEMS.items():
        report = judge(comparison, options)
        for name, expected in hem_case["expected"].items():
            assert {case: report.hem[case][name] for case in report.hem} == {
                case: near(value) for case, value in expected[key].items()
            }, (name, key)
            if key == "hem":
                assert {case: report.band[case][name] for case in report.band} == expected["band"], name


def test_table_iii(table):
    report = judge(IndexTable({table["algorithm"]: table["index"]}))
    for case, expected in table["hem"].items():
        assert report.hem[case][table["algorithm"]] == near(expected)
        assert report.band[case][table["algorithm"]] == table["band"][case]
    figure = hem_of(table["index"], FIGURE.use_cases["smartphone"])
    assert figure == near(table["hem_smartphone_figure_weights_2331"])


def test_borders_of_the_bands(border):
    assert band_of(border["hem"]) == border["band"]


def test_what_must_raise_raises(must_raise):
    curves = {
        "base": None,
        "eval_rounds": [1],
        "client_accuracy": [must_raise["accuracy"]],
        "t_train": [1.0],
        "t_eval": [0.0],
    }
    with pytest.raises(ConfigError, match=r"algorithms\.A\.client_accuracy of round 1, client 0 must be a fraction"):
        parse_input({"target": 0.8, "max_rounds": 1, "algorithms": {"A": curves}})


def test_times_to_accuracy(tta):
    a, b = tta["tta_a"], tta["tta_b"]
    logs = {"log_t_a": log_interval(a), "log_t_b": log_interval(b), "paired_ratio_a_over_b": paired_ratio(a, b)}
    for key, found in logs.items():
        assert found is not None
        expected = tta[key]
        assert found.n == expected["n"]
        assert found.geometric_mean == pytest.approx(expected["geometric_mean"], rel=1e-12)
        assert found.ci == pytest.approx(expected["ci"], rel=1e-12)
        assert found.t_quantile == pytest.approx(expected["t_quantile"], rel=1e-12)
    assert olympic_mean(a) == pytest.approx(tta["olympic_mean_a"], rel=1e-12)
    order = vars(order_interval(a))
    assert {**order, "ci": list(order["ci"])} == tta["order_stat_a"]
    for key, expected in tta["order_coverage"].items():
        n, k = (int(part.split("=")[1]) for part in key.split(","))
        assert order_coverage(n, k) == pytest.approx(expected, abs=1e-15)
