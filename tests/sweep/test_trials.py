"""Enumeration, counts and identities of trials."""

from __future__ import annotations

import dataclasses

import pytest

from fedhpc.errors import ConfigError
from fedhpc.report.selection import criteria
from fedhpc.sweep.trials import (
    Axes,
    SweepDataset,
    TrialSpec,
    count_trials,
    enumerate_trials,
    needed_test_envs,
    singles_and_pairs,
)

SPEC = TrialSpec("pacs", "erm", (0, 2), 3, 1, 5001, 300)


def test_an_identity_is_stable() -> None:
    """A sweep made today must be found by tomorrow's version: these texts may never change."""
    assert SPEC.id == "0edaec204ed60c45"
    assert SPEC.folder == f"trials/pacs/erm/e0+2-h3-t1-{SPEC.id}"
    assert TrialSpec.from_dict(SPEC.to_dict()) == SPEC
    assert TrialSpec.from_dict(SPEC.full_dict()).id == SPEC.id


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "vlcs"},
        {"algorithm": "irm"},
        {"test_envs": (0,)},
        {"hparams_seed": 0},
        {"trial_seed": 0},
        {"steps": 5000},
        {"checkpoint_freq": 100},
        {"holdout_fraction": 0.1},
        {"profile": "head"},
        {"hparams": {"batch_size": 16}},
        {"setup": {"model": {"name": "mlp"}}},
    ],
)
def test_whatever_changes_the_result_changes_the_identity(change: dict[str, object]) -> None:
    assert dataclasses.replace(SPEC, **change).id != SPEC.id  # type: ignore[arg-type]


def test_values_at_their_defaults_do_not_enter_the_identity() -> None:
    assert set(SPEC.to_dict()) == {
        "dataset", "algorithm", "test_envs", "hparams_seed", "trial_seed", "steps", "checkpoint_freq",
    }  # fmt: skip


def test_no_two_trials_of_a_sweep_share_an_identity() -> None:
    trials = _sweep(["erm", "irm"], {"pacs": 4, "colored_mnist": 3})
    assert len(trials) == 2 * 3 * 2 * (10 + 6)
    assert len({t.id for t in trials}) == len({t.folder for t in trials}) == len(trials)


def _sweep(algorithms: list[str], sizes: dict[str, int]) -> list[TrialSpec]:
    datasets = [SweepDataset(name, n, 10, 5) for name, n in sizes.items()]
    axes = Axes(algorithms, range(3), range(2))
    return list(enumerate_trials(axes, datasets, {name: singles_and_pairs(n) for name, n in sizes.items()}))


def test_criteria_need_singles_or_pairs() -> None:
    known = criteria()
    singles = [(0,), (1,), (2,), (3,)]
    assert needed_test_envs({"oracle": known["oracle"]}, 4) == singles
    assert needed_test_envs({"x": known["training_domain_validation"]}, 4) == singles
    assert needed_test_envs(known, 4) == singles_and_pairs(4)
    assert needed_test_envs({"x": known["leave_one_domain_out"]}, 4, [1]) == [(0, 1), (1,), (1, 2), (1, 3)]


def test_a_criterion_that_leaves_nothing_to_train_on_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"leave_one_domain_out.*2 environments.*nothing would be left"):
        needed_test_envs(criteria(), 2)
    assert needed_test_envs({"oracle": criteria()["oracle"]}, 2) == [(0,), (1,)]


def test_counts_per_dataset_and_criterion() -> None:
    sizes = {"pacs": 4, "colored_mnist": 3}
    counts = count_trials(_sweep(["erm"], sizes), criteria(), sizes)
    assert counts == {
        "pacs": {"all": 60, "training_domain_validation": 24, "leave_one_domain_out": 60, "oracle": 24},
        "colored_mnist": {"all": 36, "training_domain_validation": 18, "leave_one_domain_out": 36, "oracle": 18},
    }
