"""Known answers of FedMedICL: its counting rules in mode compat, its arithmetic, and what it should have computed.

Cases come from the folder that `--vectors` names (default: the copies beside this file); kinds are told by content.
"""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedhpc.data._units import unit_split
from fedhpc.data.balanced import TaskPasses, balanced_weights
from fedhpc.errors import ConfigError
from fedhpc.medical import counting, longtail
from fedhpc.medical.contrast import contrast
from fedhpc.medical.groups import BINARY_EDGES, BRACKET_EDGES, brackets
from fedhpc.medical.kinds import drawn_kinds, group_counts
from fedhpc.medical.swad import CompatSwad
from fedhpc.objectives.batch_mixup import mixed
from fedhpc.report import ltr
from fedhpc.tensors.accumulator import add_weighted_
from tests.golden.fedmedicl_cases import find, folder_of


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest) -> Path:
    return folder_of(request.config)


def formula(folder: Path, name: str) -> list[dict[str, Any]]:
    cases = find(folder, "formulas")["data"].get(name)
    if not cases:
        pytest.skip(f"no {name} cases")
    return cases


def test_client_kinds_are_drawn_as_in_the_original(folder: Path) -> None:
    for case in formula(folder, "imbalance_scenarios"):
        rng = random.Random(case["seed"])
        if "error" in case:
            with pytest.raises(ConfigError, match="spare"):
                drawn_kinds(case["K"], case["ratios"], rng)
            continue
        kinds = drawn_kinds(case["K"], case["ratios"], rng)
        assert kinds == case["scenarios"] + ["spare"] * case["spare"], case


def test_group_counts_of_a_client_kind(folder: Path) -> None:
    for case in formula(folder, "attribute_distribution"):
        found = group_counts(case["scenario"], case["group_sizes"], case["samples_per_client"])
        assert found == case["counts"], case


def test_localized_counts(folder: Path) -> None:
    for case in formula(folder, "group_probability_counts"):
        counts = counting.localized_counts(case["group_sizes"], case["percentages"])
        assert counts.tolist() == case["task_group_counts"], case
        np.testing.assert_allclose(counting.fractions(counts), case["split_ratios"], rtol=0, atol=1e-15)


def test_group_ratio_counts(folder: Path) -> None:
    for case in formula(folder, "group_ratios_counts"):
        if case["replace"]:
            size = sum(case["group_sizes"]) // case["T"]
            counts = counting.drawn_counts(case["group_sizes"], case["ratios"], size)
            assert counts.tolist() == case["task_group_counts"], case
        else:
            counts, extra = counting.ratio_counts(case["group_sizes"], case["ratios"])
            assert (counts.sum(1) + extra).tolist() == case["task_n"], case


def test_novel_disease_counts(folder: Path) -> None:
    for case in formula(folder, "novel_counts"):
        sizes = [case["class_counts"].get(str(c), 0) for c in range(3)]
        counts = counting.novel_counts(sizes, case["mode"], novel=2)
        found = [{str(c): int(n) for c, n in enumerate(row) if n} for row in counts]
        assert found == case["task_class_counts"], case


def test_age_brackets_with_the_originals_edges(folder: Path) -> None:
    for case in formula(folder, "age_brackets"):
        age = np.array([float(case["age"])])
        for column, edges in (("Age_multi", BRACKET_EDGES["compat"]), ("Age_binary", BINARY_EDGES["compat"])):
            expected = -1 if case[column] is None else case[column]
            assert brackets(age, edges).tolist() == [expected], case


def test_fairfed_tau_normalization_and_class_balanced_loss(folder: Path) -> None:
    for case in formula(folder, "fairfed_weights"):
        found = longtail.fairfed_weights(case["w_prev"], case["acc_k"], case["acc_global"], case["beta"])
        np.testing.assert_allclose(found, case["w"], rtol=1e-12)
    for case in formula(folder, "tau_normalizer"):
        weight = torch.tensor(case["W"], dtype=torch.float64)
        found = longtail.tau_normalized(weight, case["p"], case["tau"])
        torch.testing.assert_close(found, torch.tensor(case["out"], dtype=torch.float64), rtol=1e-12, atol=0)
    for case in formula(folder, "class_balanced_loss"):
        logits, labels = torch.tensor(case["logits"], dtype=torch.float64), torch.tensor(case["labels"])
        loss = longtail.class_balanced_loss(logits, labels, torch.tensor(case["samples_per_cls"]), case["beta"])
        assert float(loss) == pytest.approx(case["loss"], abs=3e-8)  # the original's class weights are float32


def test_cumulative_score(folder: Path) -> None:
    for case in formula(folder, "cumulative_average"):
        np.testing.assert_allclose(ltr.cumulative(np.array(case["matrix"])), case["cumulative"], rtol=1e-12)


def test_unit_split(folder: Path) -> None:
    for case in formula(folder, "unit_split"):
        chosen = unit_split(case["ids"], case["test_size"])
        ids = np.array(case["ids"])
        assert sorted(set(ids[chosen].tolist())) == sorted(case["test_ids"]), case
        assert (len(chosen) - chosen.sum(), chosen.sum()) == (case["n_train_rows"], case["n_test_rows"])


def test_balanced_sampling(folder: Path) -> None:
    for case in find(folder, "samplers")["cases"]:
        for kind, key in (("CB", "Target"), ("GB", "group")):
            if kind not in case["kinds"]:
                continue
            expected, keys = case["kinds"][kind], np.array(case[key])
            weights = balanced_weights(keys)
            np.testing.assert_allclose(weights[:10], expected["weights_first_10"], rtol=1e-15)
            share = weights / weights.sum()
            for name, values in (("expected_class_prob", case["Target"]), ("expected_group_prob", case["group"])):
                found = np.bincount(values, share, minlength=len(expected[name]))
                np.testing.assert_allclose(found, expected[name], rtol=1e-12, atol=1e-15)
            steps = case["steps"]
            plan = TaskPasses(
                5, case["batch_size"], steps, 1, keys=lambda client, task, keys=keys: keys, merge_single=False
            )
            drawn = [positions for (positions,) in plan.batches(0, 0, case["n"])]
            assert [len(d) for d in drawn[:12]] == expected["batch_sizes_first_12"]
            assert sum(map(len, drawn)) == expected["draws"]
            check_frequencies(np.bincount(keys[np.concatenate(drawn)], minlength=keys.max() + 1), keys)


def check_frequencies(found: np.ndarray, keys: np.ndarray) -> None:
    from scipy.stats import chi2

    present = np.unique(keys)
    assert found.sum() == found[present].sum()
    expected = found.sum() / len(present)
    statistic = ((found[present] - expected) ** 2 / expected).sum()
    assert statistic <= chi2.ppf(0.999, max(len(present) - 1, 1))


def test_plain_and_replay_batches(folder: Path) -> None:
    for case in find(folder, "samplers")["cases"]:
        plain = TaskPasses(0, case["batch_size"], 12, 1, order="stored", merge_single=False)
        drawn = [positions.tolist() for (positions,) in plain.batches(0, 0, case["n"])]
        expected = case["kinds"]["plain"]
        assert [len(d) for d in drawn] == expected["batch_sizes_first_12"]
        assert drawn[: len(expected["first_batches"])] == expected["first_batches"]
        if "ER" in case["kinds"]:
            check_replay(case, plain)


def check_replay(case: dict[str, Any], plain: TaskPasses) -> None:
    from fedhpc.data.balanced import ReplayPasses

    batches = case["kinds"]["ER"]["first_batches"]
    num_memory = 1 + max(max(b[case["batch_size"] :]) for b in batches)
    plan = ReplayPasses(plain, case["batch_size"], lambda client, task: num_memory)
    drawn = [positions for (positions,) in plan.batches(0, 0, case["n"] + num_memory)]
    assert [len(d) for d in drawn] == case["kinds"]["ER"]["batch_sizes_first_12"]
    for found, expected in zip(drawn, batches, strict=False):
        own = found[found < case["n"]]
        assert own.tolist() == expected[: len(own)]
    remembered = np.concatenate([d[d >= case["n"]] - case["n"] for d in drawn[:2]])
    assert sorted(remembered.tolist()) == list(range(num_memory))  # two batches are one pass over the memory


def test_metrics_of_the_original(folder: Path) -> None:
    for case in find(folder, "metrics")["cases"]:
        logits, labels, groups = (np.array(case[name]) for name in ("logits", "labels", "groups"))
        found = ltr.compat_scores(logits, labels, groups, case["num_groups"])
        expected = case["original"]
        for name in ("acc", "ltr", "group_macro", "loss"):
            assert found[name] == expected[name], (case["name"], name)
        for name in ("per_class", "per_group"):
            assert found[name] == list(expected[name].values()), (case["name"], name)
        if isinstance(expected["auc"], str):  # no area: NaN here, NaN or a crash there
            assert math.isnan(found["auc"])
        else:
            assert found["auc"] == expected["auc"]
        if expected["per_class_auc"] is not None:
            areas = [float(v) for v in expected["per_class_auc"].values()]
            np.testing.assert_allclose(found["per_class_auc"], areas, rtol=1e-12)


def test_metrics_as_they_should_be(folder: Path) -> None:
    content = find(folder, "metrics")
    for case in content["cases"]:
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
    for case in content.get("imbalance_factor", []):
        assert ltr.imbalance_factor(case["counts"]) == pytest.approx(case["IF"], rel=1e-12)
    for case in content.get("novel_disease", []):
        known, new = ltr.novel_and_known(np.array(case["per_class"]), novel=2)
        assert (known, new) == pytest.approx((case["non_covid"], case["covid"]))


def test_auc_of_a_second_evaluation_does_not_remember_the_first(folder: Path) -> None:
    case = find(folder, "metrics")["auc_accumulation"]
    labels = np.array(case["labels"])
    for name, expected in (("first", case["original_auc_after_first"]), ("second", case["correct_auc_second"])):
        found, reason = ltr.auc(ltr.softmax(np.array(case[f"logits_{name}"])), labels)
        assert (round(found, 3), reason) == (expected, "")


def test_federated_averaging(folder: Path) -> None:
    for case in find(folder, "primitives").get("fedavg", []):
        shares = np.array(case["weights"] or [1 / case["K"]] * case["K"], dtype=np.float64)
        shares = shares / shares.sum()
        for name, expected in case["correct_weighted_mean"].items():
            if name.endswith("num_batches_tracked"):
                continue
            total = torch.zeros(np.array(expected).shape, dtype=torch.float64).reshape(-1)
            for state, share in zip(case["before"], shares, strict=True):
                add_weighted_(total, torch.tensor(state[name], dtype=torch.float64).reshape(-1), float(share), 40)
            np.testing.assert_allclose(total.numpy(), np.array(expected).reshape(-1), rtol=0, atol=1e-6)


def test_swad_of_the_original(folder: Path) -> None:
    for case in find(folder, "primitives").get("swad", []):
        swad: CompatSwad[float] = CompatSwad(case["n_converge"], case["n_tolerance"], case["tolerance_ratio"])
        steps = case["steps_per_segment"]
        for number, (loss, mean) in enumerate(zip(case["eval_losses"], case["segment_params"], strict=True)):
            swad.evaluated(mean, (number + 1) * steps, loss)
            expected = case["after_each_eval"][number]
            assert (swad.converge_step, swad.dead) == (expected["converge_step"], expected["dead"])
            for found, wanted in ((swad.threshold, expected["threshold"]), (swad.mean, expected["final"])):
                assert found is wanted is None or found == pytest.approx(wanted, rel=1e-12)
            assert expected["n_averaged"] in (None, swad.num_averaged)
        assert swad.result() == pytest.approx(case["final_param"], rel=1e-12)
        assert max(swad.num_averaged, 1) == case["final_n_averaged"]


def test_swad_segment_forgets_what_came_before(folder: Path) -> None:
    from fedhpc.medical.swad import RunningMean

    for case in find(folder, "primitives").get("swad_segment", []):
        running: RunningMean[float] = RunningMean()
        for iterate, expected in zip(case["iterates"], case["running_average"], strict=True):
            running.add(iterate)
            assert running.mean == pytest.approx(expected, rel=1e-12)


def test_batch_norm_refresh(folder: Path) -> None:
    for case in find(folder, "primitives").get("update_bn", []):
        weight = torch.tensor(case["W"], dtype=torch.float64)
        linear, norm = torch.nn.Linear(*weight.shape[::-1]).double(), torch.nn.BatchNorm1d(len(weight)).double()
        linear.load_state_dict({"weight": weight, "bias": torch.tensor(case["b"], dtype=torch.float64)})
        norm.running_mean.fill_(7.0)
        model = torch.nn.Sequential(linear, norm).eval()
        longtail.refresh_batch_norm(model, [torch.tensor(b, dtype=torch.float64) for b in case["batches"]])
        np.testing.assert_allclose(norm.running_mean, case["running_mean"], rtol=1e-12)
        np.testing.assert_allclose(norm.running_var, case["running_var"], rtol=1e-12)
        assert int(norm.num_batches_tracked) == case["num_batches_tracked"]
        assert norm.momentum == 0.1
        assert not model.training


def test_mixup(folder: Path) -> None:
    for case in find(folder, "primitives").get("mixup", []):
        x, expected = torch.tensor(case["x"], dtype=torch.float64), torch.tensor(case["mixed"], dtype=torch.float64)
        partners = (expected - case["lam"] * x) / (1 - case["lam"])
        order = torch.cdist(partners, x).argmin(1)
        assert sorted(order.tolist()) == list(range(len(x)))
        assert [case["y"][i] for i in order] == case["y_b"]
        torch.testing.assert_close(mixed(x, case["lam"], order), expected, rtol=1e-12, atol=1e-12)


def test_sgd_with_momentum_and_weight_decay(folder: Path) -> None:
    for case in find(folder, "primitives").get("sgd", []):
        p = torch.tensor(case["p0"], dtype=torch.float64, requires_grad=True)
        options = {name: case[name] for name in ("lr", "momentum", "weight_decay")}
        optimizer = torch.optim.SGD([p], **options)
        for grad, expected in zip(case["grads"], case["trajectory"], strict=True):
            p.grad = torch.tensor(grad, dtype=torch.float64)
            optimizer.step()
            np.testing.assert_allclose(p.detach(), expected, rtol=1e-12)


def test_effect_size_and_contrast(folder: Path) -> None:
    content = find(folder, "cohend_contrast")
    for case in content["cohens_d"]:
        assert ltr.cohens_d(case["a"], case["b"]) == pytest.approx(case["cohens_d"], abs=1e-9)
        assert ltr.hedges_g(case["a"], case["b"]) == pytest.approx(case["hedges_g"], abs=1e-9)
    for case in content["contrast"]:
        found = contrast(np.array(case["image"]))
        np.testing.assert_allclose(found, case["contrast_0_45_90_135"], rtol=1e-9, atol=1e-9)
        assert found.mean() == pytest.approx(case["mean_contrast"], abs=1e-9)
