"""Known answers of FedMedICL's averaging, SWAD, batch-norm refresh, MixUp and SGD.

Cases come from the folder that `--vectors` names (default: the copies beside this file); kinds are told by content.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedhpc.medical import longtail
from fedhpc.medical.swad import CompatSwad, RunningMean
from fedhpc.objectives.batch_mixup import mixed
from fedhpc.tensors.accumulator import add_weighted_
from tests.golden.fedmedicl_cases import Case, cases_of, folder_of

HEAD, COUNTER = "output_layer.", "num_batches_tracked"


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest) -> Path:
    return folder_of(request.config)


def weighted_sum(case: Case, name: str, shares: np.ndarray) -> np.ndarray:
    """Sum over the clients' states, through the exact accumulator."""
    values = [torch.tensor(state[name], dtype=torch.float64) for state in case["before"]]
    total = torch.zeros(values[0].numel(), dtype=torch.float64)
    for value, share in zip(values, shares, strict=True):
        add_weighted_(total, value.reshape(-1), float(share), 40)
    return total.reshape(values[0].shape).numpy()


def shares_of(case: Case) -> np.ndarray:
    shares = np.array(case["weights"] or [1 / case["K"]] * case["K"], dtype=np.float64)
    return shares / shares.sum()


def test_federated_averaging(folder: Path) -> None:
    for case in cases_of(folder, "fedavg", "before", "correct_weighted_mean"):
        assert case["K"] == len(case["before"])
        for name, expected in case["correct_weighted_mean"].items():
            np.testing.assert_allclose(weighted_sum(case, name, shares_of(case)), expected, rtol=0, atol=1e-6)
            if name.endswith(COUNTER):
                assert case["exact_mean_num_batches_tracked"] == pytest.approx(expected, rel=1e-12)


def test_what_the_originals_averaging_leaves_with_each_client(folder: Path) -> None:
    """Heads stay where only the backbone is averaged, counters are cut off, weights are all taken from the last."""
    for case in cases_of(folder, "fedavg", "before", "after"):
        shares = shares_of(case)
        right = case["weights"] is None
        theirs = shares if right else np.full(case["K"], shares[-1])  # defect B14
        for before, after in zip(case["before"], case["after"], strict=True):
            assert set(after) == set(before)
            for name, found in after.items():
                summed = weighted_sum(case, name, theirs)
                if name.startswith(HEAD) and not case["average_all_layers"]:
                    assert found == before[name]
                elif name.endswith(COUNTER):
                    assert found == int(summed + 1e-6)
                else:
                    np.testing.assert_allclose(summed, found, rtol=0, atol=1e-6)
        assert case["original_is_correct"] is right


def test_swad_of_the_original(folder: Path) -> None:
    for case in cases_of(folder, "swad", "eval_losses", "segment_params"):
        swad: CompatSwad[float] = CompatSwad(case["n_converge"], case["n_tolerance"], case["tolerance_ratio"])
        steps = case["steps_per_segment"]
        for number, (loss, mean) in enumerate(zip(case["eval_losses"], case["segment_params"], strict=True)):
            swad.evaluated(mean, (number + 1) * steps, loss)
            expected = case["after_each_eval"][number]
            assert (swad.converge_step, swad.dead) == (expected["converge_step"], expected["dead"])
            assert (swad.converge_step is not None) == expected["converged"]
            for found, wanted in ((swad.threshold, expected["threshold"]), (swad.mean, expected["final"])):
                assert found is wanted is None or found == pytest.approx(wanted, rel=1e-12)
            wanted = expected["n_averaged"]
            assert wanted == (None if swad.mean is None else swad.num_averaged)
        assert swad.result() == pytest.approx(case["final_param"], rel=1e-12)
        assert max(swad.num_averaged, 1) == case["final_n_averaged"]


def test_steps_over_which_the_original_averages(folder: Path) -> None:
    """With a segment for each axis the result shows which of them it is made of."""
    for case in cases_of(folder, "swad", "final_start_step", "final_end_step"):
        swad: CompatSwad[np.ndarray] = CompatSwad(case["n_converge"], case["n_tolerance"], case["tolerance_ratio"])
        axes = np.eye(len(case["eval_losses"]))
        ends = case["steps_per_segment"] * np.arange(1, len(axes) + 1)
        for axis, end, loss in zip(axes, ends, case["eval_losses"], strict=True):
            swad.evaluated(axis, int(end), loss)
        used = ends[swad.result() > 0]
        assert (used[0], used[-1]) == (case["final_start_step"], case["final_end_step"])


def test_swad_segment_forgets_what_came_before(folder: Path) -> None:
    for case in cases_of(folder, "swad_segment", "iterates"):
        running: RunningMean[float] = RunningMean()
        for iterate, expected in zip(case["iterates"], case["running_average"], strict=True):
            running.add(iterate)
            assert running.mean == pytest.approx(expected, rel=1e-12)


def test_batch_norm_refresh(folder: Path) -> None:
    for case in cases_of(folder, "update_bn", "batches"):
        weight = torch.tensor(case["W"], dtype=torch.float64)
        linear, norm = torch.nn.Linear(*weight.shape[::-1]).double(), torch.nn.BatchNorm1d(len(weight)).double()
        linear.load_state_dict({"weight": weight, "bias": torch.tensor(case["b"], dtype=torch.float64)})
        norm.running_mean.fill_(7.0)
        scales = {"gamma": norm.weight, "beta": norm.bias}
        for name, values in scales.items():
            values.data.copy_(torch.tensor(case[name]))
        model = torch.nn.Sequential(linear, norm).eval()
        longtail.refresh_batch_norm(model, [torch.tensor(b, dtype=torch.float64) for b in case["batches"]])
        np.testing.assert_allclose(norm.running_mean, case["running_mean"], rtol=1e-12)
        np.testing.assert_allclose(norm.running_var, case["running_var"], rtol=1e-12)
        assert int(norm.num_batches_tracked) == case["num_batches_tracked"]
        for name, values in scales.items():  # left as they were
            assert values.tolist() == case[name]
        assert norm.momentum == 0.1
        assert not model.training


def test_mixup(folder: Path) -> None:
    for case in cases_of(folder, "mixup", "lam", "mixed"):
        x, expected = torch.tensor(case["x"], dtype=torch.float64), torch.tensor(case["mixed"], dtype=torch.float64)
        partners = (expected - case["lam"] * x) / (1 - case["lam"])
        order = torch.cdist(partners, x).argmin(1)
        assert sorted(order.tolist()) == list(range(len(x)))
        assert case["y_a"] == case["y"]
        assert [case["y"][i] for i in order] == case["y_b"]
        torch.testing.assert_close(mixed(x, case["lam"], order), expected, rtol=1e-12, atol=1e-12)


def test_sgd_with_momentum_and_weight_decay(folder: Path) -> None:
    for case in cases_of(folder, "sgd", "grads"):
        p = torch.tensor(case["p0"], dtype=torch.float64, requires_grad=True)
        options = {name: case[name] for name in ("lr", "momentum", "weight_decay")}
        optimizer = torch.optim.SGD([p], **options)
        for grad, expected in zip(case["grads"], case["trajectory"], strict=True):
            p.grad = torch.tensor(grad, dtype=torch.float64)
            optimizer.step()
            np.testing.assert_allclose(p.detach(), expected, rtol=1e-12)
