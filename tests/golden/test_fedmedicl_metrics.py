"""Known answers of FedMedICL's metrics, what it should have computed, and the contrast study's numbers.

Cases come from the folder that `--vectors` names (default: the copies beside this file); kinds are told by content.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from fedhpc.medical.contrast import contrast
from fedhpc.report import ltr
from tests.golden.fedmedicl_cases import cases_of, folder_of


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest) -> Path:
    return folder_of(request.config)


def test_metrics_of_the_original(folder: Path) -> None:
    for case in cases_of(folder, "cases", "logits", "original"):
        logits, labels, groups = (np.array(case[name]) for name in ("logits", "labels", "groups"))
        found = ltr.compat_scores(logits, labels, groups, case["num_groups"])
        expected = case["original"]
        for name in ("acc", "ltr", "group_macro", "loss"):
            assert found[name] == expected[name], (case.get("name"), name)
        for name in ("per_class", "per_group"):
            assert {str(i): v for i, v in enumerate(found[name])} == expected[name], (case.get("name"), name)
        if isinstance(expected["auc"], str):  # no area: NaN here, NaN or a crash there
            assert math.isnan(found["auc"]), case.get("name")
            assert len(np.unique(labels)) == 1
            assert expected["auc"] == "nan" or "Only one class" in expected["auc"]
        else:
            assert found["auc"] == expected["auc"]
        if expected["per_class_auc"] is not None:
            areas = [float(v) for v in expected["per_class_auc"].values()]
            np.testing.assert_allclose(found["per_class_auc"], areas, rtol=1e-12)
        else:
            assert isinstance(expected["auc"], str)


def test_metrics_as_they_should_be(folder: Path) -> None:
    for case in cases_of(folder, "cases", "logits", "recommended"):
        logits, labels, groups = (np.array(case[name]) for name in ("logits", "labels", "groups"))
        halves = [slice(0, len(labels) // 3), slice(len(labels) // 3, None)]
        counts = [
            ltr.Counts.of(logits[h].argmax(1), labels[h], groups[h], case["num_classes"], case["num_groups"])
            for h in halves
        ]
        both, expected = counts[0] + counts[1], case["recommended"]
        assert 100 * both.ltr == pytest.approx(expected["ltr_present_classes_only"], rel=1e-12)
        assert list(both.absent_classes) == expected["absent_classes"]
        assert 100 * both.group_mean == pytest.approx(expected["group_macro_present_only"], rel=1e-12)
        sizes = both.total.sum(1)
        assert ltr.imbalance_factor(sizes) == pytest.approx(expected["imbalance_factor_present"], rel=1e-12)


def test_imbalance_factors(folder: Path) -> None:
    for case in cases_of(folder, "imbalance_factor", "counts", "IF"):
        assert ltr.imbalance_factor(case["counts"]) == pytest.approx(case["IF"], rel=1e-12)


def test_known_and_novel_classes(folder: Path) -> None:
    for case in cases_of(folder, "novel_disease", "per_class"):
        known, new = ltr.novel_and_known(np.array(case["per_class"]), novel=2)
        assert (known, new) == pytest.approx((case["non_covid"], case["covid"]))


def test_auc_of_a_second_evaluation_does_not_remember_the_first(folder: Path) -> None:
    for case in cases_of(folder, "auc_accumulation", "logits_first"):
        labels = np.array(case["labels"])
        both = [ltr.softmax(np.array(case[f"logits_{name}"])) for name in ("first", "second")]
        for scores, expected in zip(both, (case["original_auc_after_first"], case["correct_auc_second"]), strict=True):
            found, reason = ltr.auc(scores, labels)
            assert (round(found, 3), reason) == (expected, "")
        remembered, _ = ltr.auc(np.concatenate(both), np.concatenate([labels, labels]))
        assert round(remembered, 3) == case["original_auc_after_second_BUGGY"]


def test_effect_sizes(folder: Path) -> None:
    for case in cases_of(folder, "cohens_d", "a", "b"):
        for name, values in (("mean_a", case["a"]), ("mean_b", case["b"])):
            assert np.mean(values) == pytest.approx(case[name], abs=1e-9)
        found = ltr.cohens_d(case["a"], case["b"])
        assert found == pytest.approx(case["cohens_d"], abs=1e-9)
        assert abs(found) == pytest.approx(case["abs_d"], abs=1e-9)
        assert found * case["pooled_sd"] == pytest.approx(case["mean_a"] - case["mean_b"], abs=1e-9)
        assert ltr.hedges_g(case["a"], case["b"]) == pytest.approx(case["hedges_g"], abs=1e-9)


def test_contrast_of_neighbouring_pixels(folder: Path) -> None:
    for case in cases_of(folder, "contrast", "image"):
        image = np.array(case["image"])
        found = contrast(image)
        np.testing.assert_allclose(found, case["contrast_0_45_90_135"], rtol=1e-9, atol=1e-9)
        assert found.mean() == pytest.approx(case["mean_contrast"], abs=1e-9)
        for name, at in (("direct_0", 0), ("direct_135", 1), ("direct_90", 2), ("direct_45", 3)):  # named the other way
            if name in case:
                assert found[at] == pytest.approx(case[name], abs=1e-9)
        assert image.max() < case.get("levels", math.inf)
