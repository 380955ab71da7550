"""From the YAML of a sweep to its plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedhpc.config import from_tree, load, to_tree
from fedhpc.errors import ConfigError
from fedhpc.sweep.estimate import DatasetFacts, Rates, Timed, seconds_by_dataset
from fedhpc.sweep.plan import Plan, make_plan, plan_text, remarks
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


def test_remarks_say_what_is_of_no_great_use() -> None:
    said = "\n".join(remarks(planned(datasets={"colored_digits": None}, profile="head", steps=100)))
    assert "colored_digits: groupdro with one training environment is ERM (6 trials)" in said
    assert "mldg trains nothing: 1 training environments, n_meta_test 2" in said
    assert "irm's warm-up is longer than the training" in said
    assert "colored_digits: mlp_features, starting fresh" in said
    assert "pacs: resnet50, starting from IMAGENET1K_V1, batch norm frozen" in remarks(planned(datasets={"pacs": None}))


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({"algorithms": ["erm", "irn"]}, "did you mean 'irm'"),
        ({"algorithms": ["proto"]}, "has no trials"),
        ({"algorithms": []}, "at least one"),
        ({"criteria": ["oracle", "oracle"]}, "twice"),
        ({"hparams": {"batchsize": 3}}, "did you mean 'batch_size'"),
        ({"hparams": {"freeze_bn": 1}}, "true or false"),
        ({"test_envs": [4]}, "has environments 0 to 3"),
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
