"""The original's toy trainings, replayed with this package's parts: same batches, same weights, same scores.

Runs come from the folder that `--vectors` names (default: the copies beside this file); what a run does is told by its
arguments, whatever it is called.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedhpc.data.balanced import TaskPasses
from fedhpc.report import ltr
from tests.golden.fedmedicl_cases import Case, folder_of
from tests.golden.fedmedicl_replay import NAMES, REFRESHED, averaged_model, replay, runs_in, stored_passes, tensors

CLOSE = {"rtol": 0, "atol": 1e-10}
SCORES = {"acc": "acc", "per_category_acc": "ltr", "loss": "loss"}
"""What the original calls a score, and its name here."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize `run` over all runs of the folder."""
    folder = folder_of(metafunc.config)
    runs = runs_in(folder)
    none = pytest.param({}, marks=pytest.mark.skip(f"no end-to-end vectors in {folder}"))
    lost = pytest.mark.skip(f"end-to-end vectors, but not the table of their samples (CSV) in {folder}")
    params = [pytest.param(run, marks=() if run["data"] else lost) for run in runs]
    metafunc.parametrize("run", params or [none], ids=[run["name"] for run in runs] or ["none"])


def is_averaged(run: Case) -> bool:
    return run["algorithm"].startswith("SWAD")


def test_weights_and_scores_of_the_whole_run(run: Case) -> None:
    tasks, metrics = range(run["args"]["num_tasks"]), run["metrics"]["per_client"]
    found: list[dict[str, list[Any]]] = [{"val": [], "test": []} for _ in metrics]
    for task, clients in replay(run):
        models = [(client.model, 0) for client in clients]
        if is_averaged(run):
            models = [averaged_model(run, client, k, task) for k, client in enumerate(clients)]
        for k, client in enumerate(clients):
            for part, model in (("val", client.model), ("test", models[k][0])):
                rows = [run["data"].own(k, part, t) for t in tasks]
                found[k][part].append([run["data"].scores(model, r) for r in rows])
    assert len(clients) == len(run["final"]) == len(metrics)
    for k, client in enumerate(clients):
        check_state(client.model, run["final"][k])
        check_scores(found[k], metrics[k])
        check_holdout(run, models[k][0], metrics[k]["holdout"])
        if is_averaged(run):
            expected = run["swad_final"][str(k)]
            assert models[k][1] == expected["n_averaged"]
            check_state(models[k][0], expected)
    if is_averaged(run):
        assert run["bn_update_steps"] == REFRESHED * len(clients) * len(tasks)


def check_state(model: nn.Module, expected: Case) -> None:
    state = model.state_dict()
    found = tensors(expected)
    assert set(found) == set(NAMES.values())
    for key, value in found.items():
        torch.testing.assert_close(state[key], value, **CLOSE)
    assert int(state["norm.num_batches_tracked"]) == expected["backbone_layers.1.num_batches_tracked"]


def check_scores(found: dict[str, list[Any]], expected: Case) -> None:
    for part, rows in found.items():
        for name, ours in SCORES.items():
            assert [[s[ours] for s in row] for row in rows] == expected[f"{part}_{name}"], (part, name)
    cumulative = ltr.cumulative(np.array([[s["ltr"] for s in row] for row in found["test"]]))
    np.testing.assert_allclose(cumulative, expected["test_cumulative_ltr"], rtol=1e-12)


def check_holdout(run: Case, model: nn.Module, expected: Case) -> None:
    found = run["data"].scores(model, np.flatnonzero(run["data"].split == "holdout"))
    for name, value in expected.items():
        ours = dict(enumerate(found[name])) if isinstance(value, dict) else found[name]
        assert ours == ({int(i): v for i, v in value.items()} if isinstance(value, dict) else value), name


def test_batches_are_the_originals(run: Case) -> None:
    """Plain batches row by row; of balanced ones and of a memory the sizes, and whose samples they are."""
    args, data, plan = run["args"], run["data"], stored_passes(run)
    steps = iter(run["steps"])
    for round in range(args["num_tasks"] * args["num_rounds"]):
        for k in range(args["num_clients"]):
            task = round // args["num_rounds"]
            own = data.own(k, "train", task)
            before = [row for t in range(task) for row in data.own(k, "train", t).tolist()]
            stored = memory_sizes(plan, k, round, len(before) if args["use_rehearsal"] else 0)
            for (positions,), num in zip(plan.batches(k, round, len(own)), stored, strict=True):
                step = next(steps)
                now, memory = step[: len(positions)], step[len(positions) :]
                assert len(memory) == num
                assert set(memory) <= set(before)
                if args["dataloader_balancing"]:
                    assert set(now) <= set(own.tolist())
                else:
                    assert now == own[positions].tolist()
    assert next(steps, None) is None


def memory_sizes(plan: TaskPasses, client: int, round: int, num: int) -> list[int]:
    if not num:
        return [0] * plan.steps
    return [len(positions) for (positions,) in plan.batches(client, round, num)]
