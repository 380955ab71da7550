"""Seeds, hyperparameters, splits and the formulas of the objectives, by the original's numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedhpc.data.environment_batches import balanced_weights
from fedhpc.data.splits import split_environment
from fedhpc.objectives import cdann, coral, irm, mmd
from fedhpc.objectives.hparams import hparams_for, name_seed
from fedhpc.seeding import text_hash
from fedhpc.train.scoring import hits
from tests.golden.domainbed_cases import Case, parametrize

TOLERANCE = 1e-9


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc)


def tensors(case: Case) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(value) for name, value in case.arrays().items()}


def assert_same_plain_values(found: dict, expected: dict) -> None:
    assert found == expected
    assert {k: type(v) for k, v in found.items()} == {k: type(v) for k, v in expected.items()}


def test_seed_hash(seed_hash_case: Case) -> None:
    for case in seed_hash_case.facts["cases"]:
        assert text_hash(*case["args"]) == case["value"] == int(case["md5"], 16) % 2**31, case["args"]
        assert str(tuple(case["args"])) == case.get("text", str(tuple(case["args"])))


def test_default_hparams(default_hparams_case: Case) -> None:
    for row in default_hparams_case.facts:
        assert_same_plain_values(hparams_for(row["algorithm"], row["dataset"], profile="head"), row["hparams"])


def test_random_hparams(random_hparams_case: Case) -> None:
    for row in random_hparams_case.facts:
        seeds = row["hparams_seed"], row["trial_seed"]
        assert text_hash(*seeds) == row["random_seed"]
        assert {name: name_seed(*seeds, name) for name in row["name_seeds"]} == row["name_seeds"]
        assert_same_plain_values(hparams_for(row["algorithm"], row["dataset"], *seeds, "head"), row["hparams"])


def test_splits(splits_case: Case) -> None:
    for row in splits_case.facts:
        place = row["n"], row["trial_seed"], row["env"], row["holdout_fraction"]
        assert text_hash(row["trial_seed"], row["env"]) == row["split_seed"]
        split = split_environment(*place, row.get("uda_holdout_fraction", 0.0))
        assert split.outside.tolist() == row["out"]
        assert split.inside.tolist() == row["in"]
        assert split.unlabeled.tolist() == row.get("uda", [])
        assert split_environment(*place).inside.tolist() == row["in_before_uda"]


def test_feature_distances(functions_case: Case) -> None:
    arrays, facts = tensors(functions_case), functions_case.facts
    for k in range(max(len(facts.get("mmd", ())), len(facts.get("coral", ())))):
        a, b = arrays[f"feat/{k}/x"], arrays[f"feat/{k}/y"]
        for name, function in (("sqdist_xy", mmd.squared_distances), ("kernel_xy", mmd.kernel)):
            expected = arrays.get(f"feat/{k}/{name}")
            if expected is not None:
                torch.testing.assert_close(function(a, b), expected, rtol=0, atol=TOLERANCE)
        for name, distance in (("mmd", mmd.distance), ("coral", coral.distance)):
            if name in facts:
                assert_close_or_nan(float(distance(a, b)), facts[name][k])


def assert_close_or_nan(found: float, expected: float | None) -> None:
    if expected is None or math.isnan(expected):
        assert math.isnan(found)
    else:
        assert found == pytest.approx(expected, rel=0, abs=TOLERANCE)


def test_irm_penalty(functions_case: Case) -> None:
    arrays = tensors(functions_case)
    for k, expected in enumerate(functions_case.facts.get("irm_penalty", ())):
        found = irm.penalty(arrays[f"irm/{k}/logits"], arrays[f"irm/{k}/y"])
        assert float(found) == pytest.approx(expected, rel=0, abs=TOLERANCE)


def test_class_weights(functions_case: Case) -> None:
    for row in functions_case.facts.get("balanced_weights", ()):
        np.testing.assert_allclose(balanced_weights(np.array(row["labels"])), row["weights"], rtol=0, atol=TOLERANCE)
    for row in functions_case.facts.get("cdann_weights", ()):
        labels = torch.tensor(row["labels"])
        for num_classes in (int(labels.max()) + 1, 10):
            found = cdann.class_weights(labels, num_classes)
            assert found.dtype == torch.float32
            np.testing.assert_allclose(found, row["weights"], rtol=0, atol=TOLERANCE)


def test_accuracy(functions_case: Case) -> None:
    arrays = tensors(functions_case)
    for k, expected in enumerate(functions_case.facts.get("accuracy", ())):
        scores, labels, weights = (arrays.get(f"acc/{k}/{name}") for name in ("logits", "y", "weights"))
        assert scores is not None
        assert labels is not None
        parts = [
            hits(scores[rows], labels[rows], None if weights is None else weights[rows])
            for rows in (slice(None, len(labels) // 2), slice(len(labels) // 2, None))
        ]
        found = sum(right for right, _ in parts) / sum(total for _, total in parts)
        assert found == pytest.approx(expected, rel=0, abs=TOLERANCE)
