"""From the YAML of a sweep to its plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhpc import registry
from fedhpc.config import from_tree, load, to_tree
from fedhpc.data.splits import split_environment
from fedhpc.errors import ConfigError
from fedhpc.objectives._domains import DomainObjective
from fedhpc.sweep.estimate import DatasetFacts, Rates, Timed, seconds_by_dataset
from fedhpc.sweep.plan import Plan, make_plan, plan_text, remarks
from fedhpc.sweep.remarks import _SERIOUS, find_remarks
from fedhpc.sweep.settings import STUDY, SweepConfig

SMOKE = Path(__file__).resolve().parents[2] / "configs" / "smoke" / "sweep.yaml"
FACTS = {
    "rotated_digits": DatasetFacts(("0", "15", "30", "45"), (450, 449, 449, 449), 8, 8, 1),
    "colored_digits": DatasetFacts(("+90%", "+80%", "-90%"), (599, 599, 599), 8, 8, 2),
    "pacs": DatasetFacts(("A", "C", "P", "S"), (2048, 2344, 1670, 3929), 227, 227, 3),
}


def configured(**sweep: Any) -> SweepConfig:
    tree = {"sweep": {"datasets": {"rotated_digits": None}, "n_hparams": 2, "n_trials": 1, **sweep}}
    return from_tree(SweepConfig, tree, "test")


def planned(**sweep: Any) -> Plan:
    return make_plan(configured(**sweep), FACTS)


def test_the_smoke_sweep_is_the_one_that_was_asked_for() -> None:
    config = load(SweepConfig, str(SMOKE))
    plan = make_plan(config, FACTS)
    assert len(plan.trials) == 576
    assert {t.algorithm for t in plan.trials} == set(STUDY)
    assert plan.counts()["rotated_digits"]["oracle"] == 9 * 4 * 2 * 2
    assert from_tree(SweepConfig, to_tree(config), "again") == config


def test_only_what_the_criteria_need() -> None:
    assert len(planned(algorithms=["erm"], criteria=["oracle"]).trials) == 4 * 2
    assert len(planned(algorithms=["erm"]).trials) == 10 * 2
    plan = planned(algorithms=["erm"], test_envs=[2])
    assert {t.test_envs for t in plan.trials} == {(2,), (0, 2), (1, 2), (2, 3)}


def test_every_objective_that_has_trials_can_be_planned() -> None:
    objectives = {n: registry.load("fedhpc.objectives", n).OBJECTIVE for n in registry.names("fedhpc.objectives")}
    names = [name for name, kind in objectives.items() if issubclass(kind, DomainObjective)]
    assert set(names) > set(STUDY)
    plan = planned(algorithms=names, criteria=["oracle"])
    assert {t.algorithm for t in plan.trials} == set(names)
    remarks(plan)


def test_the_longest_come_first() -> None:
    plan = planned(datasets={"rotated_digits": None, "pacs": None}, algorithms=["erm", "mldg"])
    costs = [plan.costs[t.id] for t in plan.trials]
    assert costs == sorted(costs, reverse=True)
    assert (plan.trials[0].dataset, plan.trials[0].algorithm) == ("pacs", "mldg")
    assert len(plan.trials[0].test_envs) == 1


def test_where_the_data_or_the_weights_lie_is_no_part_of_a_trial() -> None:
    here, there = (
        make_plan(
            from_tree(
                SweepConfig,
                {"sweep": {"datasets": {"pacs": root}}, "model": {"name": "squeezenet1_1", "weights": f"{root}/w.pth"}},
                "test",
            ),
            FACTS,
        )
        for root in ("/here", "/there")
    )
    assert [t.id for t in here.trials] == [t.id for t in there.trials]
    assert here.trials[0].setup["model"]["weights"] == "w.pth"


def test_remarks_say_what_is_of_no_great_use_and_the_worst_comes_first() -> None:
    said, _ = remarks(planned(datasets=["colored_digits"], profile="head", steps=100))
    assert said[0].startswith("colored_digits: mldg trains nothing: ")
    assert (
        "colored_digits: groupdro, mixup, coral, mmd, dann, cdann with one training environment is ERM (36 trials)"
        in said
    )
    assert any("irm's warm-up is longer than the training" in line for line in said)
    assert "colored_digits: mlp_features, starting fresh" in said
    first, rest = remarks(planned(datasets={"pacs": "x"}, hparams={"lr": 0.1}))
    assert "pacs: resnet50, starting from IMAGENET1K_V1, batch norm frozen" in first
    assert "hparams.lr does not act on dann, cdann, which have lr_g and lr_d" in rest
    assert "timm" in "".join(remarks(planned(datasets={"pacs": "x"}, profile="head"))[0])


@pytest.mark.parametrize(
    ("side", "network"),
    [(8, "mlp_features"), (28, "mnist_cnn"), (32, "wide_resnet16_2"), (48, "mlp_features"), (64, "resnet50")],
)
def test_the_size_of_images_chooses_the_network(side: int, network: str) -> None:
    facts = {"rotated_digits": DatasetFacts(("a", "b", "c"), (9, 9, 9), side, side, 3)}
    said, _ = remarks(make_plan(configured(algorithms=["erm"]), facts))
    assert [line for line in said if line.startswith(f"rotated_digits: {network}, starting ")]


def test_serious_remarks_are_never_cut() -> None:
    """A remark of an objective on a single training environment is serious, whatever its words."""
    many = planned(datasets=["colored_digits"], profile="head", steps=100, n_hparams=20)
    text = plan_text(many)
    found = find_remarks(many.trials, {"colored_digits": 3}, many.hparams)
    assert len([r for r in found if r.is_serious]) > 3
    assert all(r.text in text for r in found if r.is_serious)
    alone = [t for t in many.trials if len(t.test_envs) == 2 and t.hparams_seed == 0]
    assert all(r.is_serious for r in find_remarks(alone, {"colored_digits": 3}) if "grad_penalty" not in r.text)
    assert {r.rank for r in found} >= {_SERIOUS.index("trains nothing"), _SERIOUS.index("is ERM")}


@pytest.mark.parametrize(
    ("sweep", "small"),
    [
        ({}, "b (4), c (1)"),
        ({"stratified": True}, "c (1)"),
        ({"holdout_fraction": 0.5}, "c (1)"),
        ({"holdout_fraction": 0.5, "stratified": True}, "c (1)"),
        ({"holdout_fraction": 0.2, "stratified": True, "datasets": ["colored_digits"]}, ""),
        ({"stored_split": True}, ""),
    ],
)
def test_environments_without_a_validation_part_are_told_before(sweep: dict[str, Any], small: str) -> None:
    """The remark agrees with the split."""
    sizes = (5, 4, 1)
    facts = {**FACTS, "rotated_digits": DatasetFacts(("a", "b", "c"), sizes, 8, 8, 1)}
    said = [r for r in remarks(make_plan(configured(algorithms=["erm"], **sweep), facts))[0] if "validation part" in r]
    assert [f"in environment {small}: " in r for r in said] == ([True] if small else [])
    if not sweep.keys() & {"stored_split", "datasets"}:
        fraction, labels = sweep.get("holdout_fraction", 0.2), np.zeros(5, int) if sweep.get("stratified") else None
        splits = [split_environment(n, 0, e, fraction, labels=labels) for e, n in enumerate(sizes)]
        assert [e for e, s in zip("abc", splits, strict=True) if not len(s.outside)] == [
            word[0] for word in small.split(", ")
        ]
        assert all(len(split.inside) for split in splits)


def test_draws_may_be_the_same_in_every_repetition() -> None:
    for fixed, number in ((False, 2), (True, 1)):
        plan = planned(algorithms=["erm"], criteria=["oracle"], n_trials=2, fixed_draws=fixed)
        assert len({plan.hparams["rotated_digits", "erm", 1, trial]["lr"] for trial in (0, 1)}) == number
        assert len({t.id for t in plan.trials}) == 4 * 2 * 2


def test_sets_of_environments_can_be_held_out_as_they_are() -> None:
    plan = planned(algorithms=["erm"], test_envs=[[2, 0, 1], [3]])
    assert {t.test_envs for t in plan.trials} == {(0, 1, 2), (3,)}
    plan = planned(algorithms=["erm"], criteria=["oracle"], test_envs=[0, [1, 2, 3]])
    assert {t.test_envs for t in plan.trials} == {(0,), (1, 2, 3)}
    plan = planned(algorithms=["erm"], criteria=["oracle"], test_envs=["each", [1, 2, 3]])
    assert {t.test_envs for t in plan.trials} == {(0,), (1,), (2,), (3,), (1, 2, 3)}


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({"algorithms": ["erm", "irn"]}, "did you mean 'irm'"),
        ({"algorithms": ["proto"]}, "has no trials"),
        ({"algorithms": []}, "at least one"),
        ({"criteria": ["oracle", "oracle"]}, "twice"),
        ({"hparams": {"batchsize": 3}}, "did you mean 'batch_size'"),
        ({"hparams": {"freeze_bn": 1}}, "true or false"),
        ({"hparams": {"batch_size": 1}}, "at least 2 for coral, got 1"),
        ({"test_envs": [4]}, "has environments 0 to 3"),
        ({"test_envs": [[0, 4]]}, "has environments 0 to 3"),
        ({"test_envs": [[0, 1, 2, 3]]}, "nothing would be left to train on"),
        ({"test_envs": []}, "at least one"),
        ({"test_envs": [-1]}, "at least 0"),
        ({"algorithms": ["GroupDRO"]}, "did you mean 'groupdro'"),
        ({"datasets": ["RotatedMNIST"]}, "did you mean 'rotated_mnist'"),
        ({"datasets": {"PACS": "data/pacs"}}, "did you mean 'pacs'"),
        ({"datasets": {"my/own": "data/own"}}, "letters, digits"),
        ({"datasets": ["rotated_digits", "rotated_digits"]}, "twice"),
        ({"n_trials": 0}, "at least 1"),
        ({"holdout_fraction": 1.0}, "below 1"),
    ],
)
def test_what_does_not_fit_together_is_refused(sweep: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        planned(**sweep)


def test_two_environments_cannot_be_cross_validated() -> None:
    facts = {"rotated_digits": DatasetFacts(("a", "b"), (10, 10), 8, 8, 1)}
    with pytest.raises(ConfigError, match=r"leave_one_domain_out.*dataset rotated_digits"):
        make_plan(configured(), facts)
    assert len(make_plan(configured(criteria=["oracle"], algorithms=["erm"]), facts).trials) == 4


def test_an_id_of_another_sweep_is_refused() -> None:
    plan = planned()
    assert [t.id for t in plan.only([plan.trials[3].id]).trials] == [plan.trials[3].id]
    with pytest.raises(ConfigError, match="no trial abc"):
        plan.only(["abc"])


def test_estimates_come_from_the_nearest_timed_trials() -> None:
    rates = Rates([Timed("a", "erm", 10, 1), Timed("a", "mldg", 10, 5), Timed("b", "erm", 10, 20)])
    assert rates.seconds("a", "erm", 30) == pytest.approx(3)
    assert rates.seconds("a", "mldg", 10) == pytest.approx(5)
    assert rates.seconds("a", "irm", 10) == pytest.approx(3)
    assert rates.seconds("c", "erm", 30) == pytest.approx(26)
    assert Rates([]).seconds("a", "erm", 1) is None
    plan = planned(algorithms=["erm"])
    left = seconds_by_dataset(plan.trials, plan.costs, Rates([Timed("rotated_digits", "erm", 1e6, 1)]))
    assert left == {"rotated_digits": pytest.approx(sum(plan.costs.values()) / 1e6)}
    assert "estimate: 2.0 h of one worker's time" in plan_text(plan, {"rotated_digits": 7200.0}, 1)
    assert "1.0 h on 2 ranks" in plan_text(plan, {"rotated_digits": 7200.0}, 2).replace("60.0 min", "1.0 h")
