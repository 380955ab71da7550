"""Given hyperparameters: the impossible ones are refused before anything is computed, the useless ones are named."""

from __future__ import annotations

from typing import Any

import pytest

from fedhpc.config import from_tree
from fedhpc.errors import ConfigError
from fedhpc.objectives.hparams import space_of
from fedhpc.sweep.estimate import DatasetFacts
from fedhpc.sweep.hparam_checks import _LIMITS, check_hparams, unused_hparams
from fedhpc.sweep.settings import STUDY, SweepConfig

FACTS = {"rotated_digits": DatasetFacts(("0", "15", "30", "45"), (450, 449, 449, 449), 8, 8, 1)}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("batch_size", 0, "at least 1, got 0"),
        ("batch_size", 3.7, "must be an integer at least 1, got 3.7"),
        ("lr", -1, "above 0"),
        ("lr", 0, "above 0"),
        ("lr", float("nan"), "above 0, got nan"),
        ("lr", float("inf"), "above 0, got inf"),
        ("lr_d", 0.0, "above 0"),
        ("weight_decay", -1e-3, "at least 0"),
        ("mixup_alpha", 0, "above 0"),
        ("mlp_dropout", 1.5, "at least 0 and below 1"),
        ("resnet_dropout", 1.0, "below 1"),
        ("beta1", 1, "below 1"),
        ("mlp_depth", 1, "at least 2"),
        ("mlp_width", 0, "at least 1"),
        ("d_steps_per_g_step", 0, "at least 1"),
        ("irm_lambda", -2, "at least 0"),
        ("irm_penalty_anneal_iters", 1.5, "integer"),
        ("n_meta_test", 0, "at least 1"),
        ("batch_size", True, "a number"),
        ("freeze_bn", 1, "true or false"),
        ("vit", True, "would change nothing"),
        ("dinov2", True, "would change nothing"),
        ("lars", True, "would change nothing"),
        ("linear_steps", 7, "would change nothing"),
        ("batchsize", 3, "did you mean 'batch_size'"),
    ],
)
def test_what_cannot_be_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"sweep\.hparams.*{name}.*{message}"):
        check_hparams({name: value}, STUDY)


def test_every_default_of_every_algorithm_is_allowed() -> None:
    for algorithm in STUDY:
        check_hparams({name: hparam.default for name, hparam in space_of(algorithm).items()}, (algorithm,))


def test_every_number_of_the_study_has_limits() -> None:
    for algorithm in STUDY:
        numbers = {name for name, h in space_of(algorithm).items() if not isinstance(h.default, bool)}
        assert numbers <= set(_LIMITS)


def test_what_does_not_act_is_named() -> None:
    tree = {"datasets": ["rotated_digits"], "algorithms": ["erm", "dann"], "hparams": {"lr": 0.1, "freeze_bn": False}}
    said = list(unused_hparams(from_tree(SweepConfig, {"sweep": tree}, "test"), FACTS))
    assert said == [
        "hparams.lr does not act on dann, which have lr_g and lr_d",
        "hparams.freeze_bn does not act on rotated_digits, whose network is neither resnet18 nor resnet50",
    ]
    for profile, number in (("paper", 1), ("head", 0)):
        ring = {"algorithms": ["mldg"], "hparams": {"n_meta_test": 1}, "profile": profile}
        told = unused_hparams(from_tree(SweepConfig, {"sweep": {**tree, **ring}}, "test"), FACTS)
        assert len([line for line in told if "n_meta_test does not act" in line]) == number
    tree = {"datasets": ["rotated_digits"], "algorithms": ["erm"], "hparams": {"batch_size": 8}}
    assert not list(unused_hparams(from_tree(SweepConfig, {"sweep": tree}, "test"), FACTS))
