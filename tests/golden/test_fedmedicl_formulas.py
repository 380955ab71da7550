"""Known answers of FedMedICL's counting rules and small formulas.

Cases come from the folder that `--vectors` names (default: the copies beside this file); kinds are told by content.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from fedhpc.data._units import unit_split
from fedhpc.data.ages import BINARY_EDGES, BRACKET_EDGES, brackets
from fedhpc.errors import ConfigError
from fedhpc.medical import counting, longtail
from fedhpc.medical.kinds import drawn_kinds, group_counts
from fedhpc.report import ltr
from tests.golden.fedmedicl_cases import cases_of, folder_of


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest) -> Path:
    return folder_of(request.config)


def test_client_kinds_are_drawn_as_in_the_original(folder: Path) -> None:
    for case in cases_of(folder, "imbalance_scenarios", "ratios"):
        rng = random.Random(case["seed"])
        if "error" in case:
            with pytest.raises(ConfigError, match="spare"):
                drawn_kinds(case["K"], case["ratios"], rng)
            continue
        kinds = drawn_kinds(case["K"], case["ratios"], rng)
        assert kinds == case["scenarios"] + ["spare"] * case["spare"], case


def test_group_counts_of_a_client_kind(folder: Path) -> None:
    for case in cases_of(folder, "attribute_distribution", "counts"):
        found = group_counts(case["scenario"], case["group_sizes"], case["samples_per_client"])
        assert found == case["counts"], case


def test_localized_counts(folder: Path) -> None:
    for case in cases_of(folder, "group_probability_counts", "percentages"):
        assert len(case["percentages"]) == case["T"]
        counts = counting.localized_counts(case["group_sizes"], case["percentages"])
        assert counts.tolist() == case["task_group_counts"], case
        np.testing.assert_allclose(counting.fractions(counts), case["split_ratios"], rtol=0, atol=1e-15)


def test_group_ratio_counts(folder: Path) -> None:
    for case in cases_of(folder, "group_ratios_counts", "task_n"):
        assert len(case["ratios"]) == case["T"] == case["adjusted_ratio_rows"]
        if case["replace"]:
            size = sum(case["group_sizes"]) // case["T"]
            counts, extra = counting.drawn_counts(case["group_sizes"], case["ratios"], size), 0
        else:
            counts, extra = counting.ratio_counts(case["group_sizes"], case["ratios"])
        assert (counts.sum(1) + extra).tolist() == case["task_n"], case
        if case["task_group_counts"] is not None:
            assert counts.tolist() == case["task_group_counts"], case
        else:  # not told, because a pool's rows are drawn at random
            assert not case["replace"]


def test_novel_disease_counts(folder: Path) -> None:
    for case in cases_of(folder, "novel_counts", "class_counts", "mode"):
        novel = 2
        classes = range(max(novel, *map(int, case["class_counts"])) + 1)
        sizes = [case["class_counts"].get(str(c), 0) for c in classes]
        counts = counting.novel_counts(sizes, case["mode"], novel)
        found = [{str(c): int(n) for c, n in enumerate(row) if n} for row in counts]
        assert found == case["task_class_counts"], case


def test_age_brackets_with_the_originals_edges(folder: Path) -> None:
    for case in cases_of(folder, "age_brackets", "age"):
        age = np.array([float(case["age"])])
        for column, edges in (("Age_multi", BRACKET_EDGES["compat"]), ("Age_binary", BINARY_EDGES["compat"])):
            expected = -1 if case[column] is None else case[column]
            assert brackets(age, edges).tolist() == [expected], case


def test_fairfed_weights(folder: Path) -> None:
    for case in cases_of(folder, "fairfed_weights", "w_prev"):
        found = longtail.fairfed_weights(case["w_prev"], case["acc_k"], case["acc_global"], case["beta"])
        np.testing.assert_allclose(found, case["w"], rtol=1e-12)


def test_tau_normalization(folder: Path) -> None:
    for case in cases_of(folder, "tau_normalizer", "W"):
        weight = torch.tensor(case["W"], dtype=torch.float64)
        found = longtail.tau_normalized(weight, case["p"], case["tau"])
        torch.testing.assert_close(found, torch.tensor(case["out"], dtype=torch.float64), rtol=1e-12, atol=0)


def test_class_balanced_loss(folder: Path) -> None:
    for case in cases_of(folder, "class_balanced_loss", "samples_per_cls"):
        logits, labels = torch.tensor(case["logits"], dtype=torch.float64), torch.tensor(case["labels"])
        loss = longtail.class_balanced_loss(logits, labels, torch.tensor(case["samples_per_cls"]), case["beta"])
        assert float(loss) == pytest.approx(case["loss"], abs=3e-8)  # the original's class weights are float32


def test_cumulative_score(folder: Path) -> None:
    for case in cases_of(folder, "cumulative_average", "matrix"):
        np.testing.assert_allclose(ltr.cumulative(np.array(case["matrix"])), case["cumulative"], rtol=1e-12)


def test_unit_split(folder: Path) -> None:
    for case in cases_of(folder, "unit_split", "test_ids"):
        chosen = unit_split(case["ids"], case["test_size"])
        ids = np.array(case["ids"])
        assert sorted(set(ids[chosen].tolist())) == sorted(case["test_ids"]), case
        assert (len(chosen) - chosen.sum(), chosen.sum()) == (case["n_train_rows"], case["n_test_rows"])
