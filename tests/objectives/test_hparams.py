"""Hyperparameters beyond the known answers: profiles, ranges, independence."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from fedhpc import registry
from fedhpc.errors import ConfigError
from fedhpc.objectives.hparams import Choice, PowerOf, group_of, hparams_for, space_of
from fedhpc.seeding import text_hash

STUDY = ("erm", "irm", "groupdro", "mixup", "mldg", "coral", "mmd", "dann", "cdann")


def test_profiles_differ_in_the_network_only() -> None:
    for seed in (0, 3):
        paper, head = (hparams_for("cdann", "pacs", seed, 1, profile) for profile in ("paper", "head"))
        different = {key for key in head if head[key] != paper[key]}
        assert different == {"freeze_bn", "resnet50_augmix"}
        assert (paper["freeze_bn"], paper["resnet50_augmix"]) == (True, False)
    alpha = {(profile, seed): hparams_for("mixup", "pacs", seed, 1, profile)["mixup_alpha"]
             for profile in ("paper", "head") for seed in (0, 3)}  # fmt: skip
    assert alpha["paper", 0] == alpha["head", 0] == 0.2
    assert alpha["paper", 3] == 0.1 != alpha["head", 3], "the published random search always drew 0.1"
    with pytest.raises(ConfigError, match="paper and head"):
        hparams_for("erm", "pacs", profile="best")  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", STUDY)
def test_values_are_plain_numbers_that_json_takes(algorithm: str) -> None:
    for seed in range(4):
        values = hparams_for(algorithm, "domain_net", seed, 0)
        assert json.loads(json.dumps(values)) == values


def test_algorithms_share_the_common_values() -> None:
    drawn = [hparams_for(algorithm, "vlcs", 7, 2) for algorithm in STUDY]
    for key in ("lr", "batch_size", "weight_decay", "resnet_dropout"):
        assert len({values[key] for values in drawn}) == 1
    assert len({hparams_for("erm", "vlcs", seed, 2)["lr"] for seed in range(1, 20)}) == 19


def test_both_spellings_of_names() -> None:
    assert hparams_for("GroupDRO", "RotatedMNIST", 5, 1) == hparams_for("groupdro", "rotated_mnist", 5, 1)
    assert [group_of(n) for n in ("ColoredMNIST", "rotated_digits", "DomainNet", "office_home")] == [
        "small",
        "small",
        "domain_net",
        "large",
    ]
    with pytest.raises(ConfigError, match="no 'fish'"):
        space_of("fish")


def test_every_objective_goes_by_the_name_of_its_file() -> None:
    for name in registry.names("fedhpc.objectives"):
        assert space_of(name).keys() >= registry.load("fedhpc.objectives", name).OBJECTIVE.space.keys()


def test_distributions_stay_in_their_range() -> None:
    draws = [PowerOf(2, 3, 5.5, integer=True).draw(np.random.RandomState(s)) for s in range(400)]
    assert {type(d) for d in draws} == {int}
    assert min(draws) == 8
    assert max(draws) in (43, 44, 45)
    chosen = [Choice((1, 2)).draw(np.random.RandomState(s)) for s in range(50)]
    assert set(chosen) == {1, 2}
    assert {type(c) for c in chosen} == {int}


def test_hash_refuses_numpy_numbers() -> None:
    """They print differently, so that a seed would silently be another one."""
    with pytest.raises(TypeError, match="int64"):
        text_hash(np.int64(1), "lr")
    with pytest.raises(TypeError, match="float64"):
        text_hash([np.float64(0.2)])
    assert text_hash(1, "lr") != text_hash("1", "lr")


def test_seeds_cost_no_torch() -> None:
    code = "import sys, fedhpc.objectives.hparams, fedhpc.data.splits; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
