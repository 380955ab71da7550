from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from fedhpc.errors import ConfigError
from fedhpc.report.hem import Comparison, IndexTable
from fedhpc.report.hem_importances import parse_importances
from fedhpc.report.hem_inputs import parse_input, read_input

CURVE = {
    "base": None,
    "eval_rounds": [0, 2],
    "client_accuracy": [[0.1, 0.2], [0.8, 0.9]],
    "t_train": [1.0, 2.0],
    "t_eval": [0.5, 0.5],
}
TREE: dict[str, Any] = {"target": 0.8, "max_rounds": 2, "algorithms": {"A": CURVE, "A_MAML": {**CURVE, "base": "A"}}}


def test_curves_are_read():
    found = parse_input(TREE)
    assert isinstance(found, Comparison)
    assert (found.target, found.cap, found.warnings) == (0.8, 2, ())
    assert [c.base for c in found.curves] == [None, "A"]
    assert found.curves[0].accuracies == ((0.1, 0.2), (0.8, 0.9))
    assert found.curves[0].evaluate_seconds == (0.5, 0.5)
    assert parse_input({"id": "h", "input": TREE, "expected": {}}) == found


def test_target_and_cap_can_be_given():
    found = parse_input({"algorithms": TREE["algorithms"]}, target=0.5, cap=9)
    assert isinstance(found, Comparison)
    assert (found.target, found.cap) == (0.5, 9)


def test_missing_accuracies_stay_missing():
    tree = copy.deepcopy(TREE)
    tree["algorithms"]["A"]["client_accuracy"][1] = [None, float("nan")]
    found = parse_input(tree)
    assert isinstance(found, Comparison)
    assert found.curves[0].accuracies[1] == (None, None)


def test_a_client_without_test_data_is_taken_out_of_every_list():
    tree = copy.deepcopy(TREE)
    for curve in tree["algorithms"].values():
        curve["client_accuracy"] = [[0.1, None, 0.2], [0.8, None, 0.9]]
    found = parse_input(tree)
    assert isinstance(found, Comparison)
    assert all(c.accuracies == ((0.1, 0.2), (0.8, 0.9)) for c in found.curves)
    assert found.warnings == ("without test data, left out everywhere: clients 1",)


def test_test_samples_say_who_has_none_and_weigh():
    found = parse_input({**TREE, "test_samples": [0, 7]})
    assert isinstance(found, Comparison)
    assert found.curves[0].accuracies == ((0.2,), (0.9,))
    assert found.curves[0].test_samples == (7,)


def test_indices_are_read_and_a_missing_one_is_none():
    found = parse_input({"indices": {"A": {"accuracy": 0.5, "convergence": 0, "computation": 1, "fairness": None}}})
    assert isinstance(found, IndexTable)
    assert found.indices == {"A": {"accuracy": 0.5, "convergence": 0.0, "computation": 1.0, "fairness": None}}
    without = parse_input({"indices": {"A": {}}})
    assert isinstance(without, IndexTable)
    assert set(without.indices["A"].values()) == {None}


def change(*path: Any, to: Any) -> dict[str, Any]:
    tree = copy.deepcopy(TREE)
    place: Any = tree
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return tree


A = ("algorithms", "A")


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([], "neither indices nor curves"),
        ({}, "neither indices nor curves"),
        (change("target", to=80), "target must be a fraction"),
        (change("target", to="0.8"), "target must be a number"),
        (change("target", to=None), "target must be a number, got None"),
        (change("max_rounds", to=2.5), "max_rounds must be a whole number"),
        (change("max_rounds", to=True), "max_rounds"),
        (change("max_rounds", to=0), "cap on rounds"),
        (change("max_round", to=3), "no key 'max_round'.*did you mean 'max_rounds'"),
        (change("algorithms", to={}), "at least one"),
        (change("algorithms", to=[1]), "algorithms must be an object"),
        (change(*A, to=3), r"algorithms\.A must be an object"),
        (change(*A, "t_trian", to=[1]), r"algorithms\.A has no key 't_trian'.*'t_train'"),
        (change(*A, "base", to="B"), r"algorithms\.A\.base: there is no other algorithm 'B'"),
        (change(*A, "base", to="A"), r"algorithms\.A\.base"),
        (change(*A, "base", to=1), r"algorithms\.A\.base"),
        (change(*A, "eval_rounds", to=[2, 1]), "must rise"),
        (change(*A, "eval_rounds", to=[1, 1]), "must rise"),
        (change(*A, "eval_rounds", to=[-1, 1]), "must rise"),
        (change(*A, "eval_rounds", to=[]), "at least one value"),
        (change(*A, "eval_rounds", to=[3, 4]), "beyond max_rounds"),
        (change(*A, "eval_rounds", to=[1, 2, 3]), "has 2 evaluations, eval_rounds has 3"),
        (change(*A, "t_train", to=[1.0]), "t_train has 1 numbers, but round 2 was evaluated; it needs the seconds"),
        (change(*A, "t_train", to=[1.0, -2.0]), "cannot be negative"),
        (change(*A, "t_train", to=[1.0, None]), "t_train must be a number, got None"),
        (change(*A, "t_train", to=[1.0, float("inf")]), "t_train must be a number"),
        (change(*A, "t_eval", to=[1.0, 1.0, 1.0]), "t_train has 2 rounds, t_eval 3"),
        (change(*A, "client_accuracy", to=[[10, 20], [80, 90]]), "round 0, client 0 must be a fraction .* percent"),
        (change(*A, "client_accuracy", to=[[0.1, 0.2], [0.8, -0.1]]), "round 2, client 1 must be a fraction"),
        (change(*A, "client_accuracy", to=[[0.1, 0.2], [0.8, 1.0000001]]), "must be a fraction"),
        (change(*A, "client_accuracy", to=[[0.1, 0.2], [0.8, "x"]]), "must be a number, got 'x'"),
        (change(*A, "client_accuracy", to=[[0.1, 0.2], [0.8]]), "must list the same clients"),
        (change(*A, "client_accuracy", to=[[0.1], [0.8]]), "all must have the same clients, got A 1, A_MAML 2"),
        (change(*A, "client_accuracy", to=[[], []]), "at least one value"),
        (change("test_samples", to=[1]), "each of the 2 clients"),
        (change("test_samples", to=[1, -1]), "number >= 0"),
        ({"indices": {}}, "at least one"),
        ({"indices": {"A": {"accuracy": 84}}}, r"indices\.A\.accuracy must be a fraction .* percent"),
        ({"indices": {"A": {"acuracy": 0.8}}}, "did you mean 'accuracy'"),
        ({"indices": {"A": {"accuracy": True}}}, "must be a number"),
    ],
)
def test_what_cannot_be_used_is_named(tree, message):
    with pytest.raises(ConfigError, match=message):
        parse_input(tree)


def test_problems_of_the_file_name_it(tmp_path):
    path = tmp_path / "in.json"
    with pytest.raises(ConfigError, match=r"in\.json: cannot be read"):
        read_input(path)
    for text, message in (
        ("{", "is not JSON"),
        ('{"indices": {"A": {}, "A": {}}}', "'A' is there twice"),
        (json.dumps(change("target", to=80)), "target must be"),
        ("[" * 100_000, "is not JSON"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=rf"in\.json: .*{message}"):
            read_input(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"in\.json: is not JSON"):
        read_input(path)


def test_importances_are_levels_or_numbers():
    found = parse_importances(
        {
            "levels": {"much": 5, "little": 0.5},
            "use_cases": {"mine": {"accuracy": "much", "convergence": "little", "computation": 2, "fairness": 0}},
            "bands": {"Great": "> 0.9", "Fine": 0.4, "Bad": ">= 0"},
        },
        "file",
    )
    assert found.use_cases == {"mine": {"accuracy": 5, "convergence": 0.5, "computation": 2, "fairness": 0}}
    assert [(b.name, b.least, b.inclusive) for b in found.bands] == [
        ("Great", 0.9, False),
        ("Fine", 0.4, True),
        ("Bad", 0.0, True),
    ]


def test_own_levels_alone_apply_to_the_papers_use_cases():
    found = parse_importances({"levels": {"high": 4, "moderate": 2, "low": 1}}, "file")
    assert found.use_cases["smartphone"] == {"accuracy": 2, "convergence": 4, "computation": 4, "fairness": 2}


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"use_case": {}}, "no key 'use_case'.*'use_cases'"),
        ({"levels": {}}, "levels must be a mapping"),
        ({"levels": {"high": "3"}}, r"levels\.high must be a number"),
        ({"levels": {"top": 3}}, "no level 'low'|no level 'high'"),
        ({"use_cases": {"x": 3}}, r"use_cases\.x must be a mapping"),
        ({"use_cases": {"x": {"accuracy": "hihg"}}}, "no level 'hihg'.*'high'"),
        ({"use_cases": {"x": {"accuracy": 1}}}, "unknown or missing"),
        ({"bands": {"Good": "about 0.7"}}, r"bands\.Good must be a lower border"),
        ({"bands": {"Low": 0, "Good": 0.7}}, "from the best to the worst"),
    ],
)
def test_importances_that_cannot_be_used_are_named(tree, message):
    with pytest.raises(ConfigError, match=f"file: .*({message})"):
        parse_importances(tree, "file")
