"""The original's toy trainings, replayed with this package's parts: same batches, same weights, same scores."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedhpc.data.balanced import TaskPasses
from fedhpc.data.samples import Batch
from fedhpc.medical.longtail import head_names, refresh_batch_norm
from fedhpc.medical.swad import RunningMean
from fedhpc.models.base import ModelOptions, Network
from fedhpc.objectives.batch_mixup import BatchMixup
from fedhpc.objectives.erm import Erm
from fedhpc.objectives.setting import Setting
from fedhpc.report import ltr
from fedhpc.tensors.accumulator import add_weighted_
from fedhpc.tensors.vector import ParameterVector
from fedhpc.train.solver import LocalSolver
from tests.golden.folders import vector_folder

NAMES = {
    "backbone_layers.0.weight": "linear.weight",
    "backbone_layers.0.bias": "linear.bias",
    "backbone_layers.1.weight": "norm.weight",
    "backbone_layers.1.bias": "norm.bias",
    "output_layer.weight": "classifier.weight",
    "output_layer.bias": "classifier.bias",
}
BUFFERS = {"backbone_layers.1.running_mean": "norm.running_mean", "backbone_layers.1.running_var": "norm.running_var"}
CLOSE = {"rtol": 0, "atol": 1e-10}


class Tiny(Network):
    def __init__(self) -> None:
        super().__init__(5, ModelOptions())
        self.linear, self.norm = nn.Linear(6, 5), nn.BatchNorm1d(5)
        self.classifier = nn.Linear(5, 3)

    def features(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x)).relu()


class Given:
    """Mixup's draws, as they were recorded."""

    def __init__(self) -> None:
        self.share, self.order = 1.0, [0]

    def permutation(self, step: int, n: int) -> list[int]:
        assert len(self.order) == n
        return self.order

    def mixing(self, step: int, pair: int, alpha: float) -> float:
        assert alpha == 1.0
        return self.share


class Client:
    """One client's model, with an optimizer that lives as long as the run."""

    def __init__(self, run: dict[str, Any], state: dict[str, Any]) -> None:
        self.model = Tiny().double()
        self.model.load_state_dict(tensors(state) | {"norm.num_batches_tracked": torch.tensor(0)})
        self.vector = ParameterVector(self.model)
        self.draws = Given()
        kind = BatchMixup if "mixup" in run else Erm
        self.objective = kind(self.model, self.vector, Setting(draws=self.draws))
        options = {"lr": run["lr"], "momentum": run["momentum"], "weight_decay": run["args"]["weight_decay"]}
        self.optimizer = partial(torch.optim.SGD, **options)
        self.solver = LocalSolver(self.vector, self.objective, self.optimizer)
        self.swad: RunningMean[Tensor] = RunningMean()


def tensors(state: dict[str, Any]) -> dict[str, Tensor]:
    names = NAMES | BUFFERS
    return {names[k]: torch.tensor(v, dtype=torch.float64) for k, v in state.items() if k in names}


@pytest.fixture(scope="module")
def content(request: pytest.FixtureRequest) -> dict[str, Any]:
    folder = vector_folder(request.config, "fedmedicl")
    for path in sorted(folder.rglob("*.json")):
        found = json.loads(path.read_text())
        if isinstance(found, dict) and "runs" in found and "init" in found and "step_order" in found:
            with path.with_name(found["data_file"]).open(newline="") as file:
                found["rows"] = list(csv.DictReader(file))
            return found
    pytest.skip(f"no end-to-end vectors in {folder}")


@pytest.fixture(scope="module")
def data(content: dict[str, Any]) -> dict[str, np.ndarray]:
    rows = content["rows"]
    found = {name: np.array([int(r[name]) for r in rows]) for name in ("client", "task", "Target", "Age_binary")}
    found["split"] = np.array([r["split"] for r in rows])
    train = np.bincount(found["Age_binary"][found["split"] == "train"], minlength=2)
    found["group"] = found["Age_binary"] if train[0] >= train[1] else 1 - found["Age_binary"]  # by descending size
    found["x"] = np.array([[float(r[f"f{i}"]) for i in range(6)] for r in rows])
    return found


@pytest.fixture(
    params=["ERM", "fedavg", "fedavg_backbone", "mixup", "CRT", "ER", "CB", "resampling", "SWAD_6", "SWAD_1", "FACTR"]
)
def name(request: pytest.FixtureRequest, content: dict[str, Any]) -> str:
    if request.param not in content["runs"]:
        pytest.skip(f"no run {request.param}")
    return request.param


def batch_of(data: dict[str, np.ndarray], rows: list[int]) -> Batch:
    return Batch(torch.from_numpy(data["x"][rows]), torch.from_numpy(data["Target"][rows]))


def average(clients: list[Client], backbone_only: bool) -> None:
    """Equal weights for parameters and statistics, through the exact accumulator."""
    for part in ("weights", "buffers"):
        total = torch.zeros(len(getattr(clients[0].vector, part)), dtype=torch.float64)
        for client in clients:
            add_weighted_(total, getattr(client.vector, part), 1 / len(clients), 48)
        for client in clients:
            kept = {n: p.clone() for n, p in client.model.named_parameters() if n in head_names(client.model)}
            getattr(client.vector, part).copy_(total)
            if backbone_only:
                for n, p in client.model.named_parameters():
                    if n in kept:
                        p.data.copy_(kept[n])


def train_head(client: Client, batches: list[Batch]) -> None:
    """The original's second stage: a fresh optimizer of the head alone, batch norm still in training mode."""
    backbone = [i for i, slot in enumerate(client.vector.layout) if slot.name not in head_names(client.model)]
    head = [p for n, p in client.model.named_parameters() if n in head_names(client.model)]
    optimizer = client.optimizer(head)
    for batch in batches:
        client.vector.zero_grads()
        client.objective.backward([batch])
        client.vector.hide_grads(backbone)
        optimizer.step()
        client.vector.show_grads(backbone)


def replay(
    run: dict[str, Any], content: dict[str, Any], data: dict[str, np.ndarray]
) -> Iterator[tuple[int, list[Client]]]:
    """Run it all; yield the clients at the end of every task."""
    args = run["args"]
    clients = [Client(run, content["init"][k]) for k in range(args["num_clients"])]
    steps, draws = iter(run["steps"]), iter(run.get("mixup", []))
    per_evaluation = max(args["num_rounds"] // args["num_evaluations"], 1)
    for task in range(args["num_tasks"]):
        for round in range(args["num_rounds"]):
            for client in clients:
                if round == 0 or round % per_evaluation == 0:
                    client.swad = RunningMean()
                for _ in range(args["num_iters"]):
                    if "mixup" in run:
                        draw = next(draws)
                        client.draws.share, client.draws.order = draw["lam"], draw["perm"]
                    client.solver.step([batch_of(data, next(steps))])
                    client.swad.add(client.vector.weights.clone())
                if run["algorithm"] == "CRT":
                    train_head(client, [batch_of(data, next(steps)) for _ in range(args["num_iters"])])
            if args["use_fl"]:
                average(clients, not args["average_all_layers"])
        yield task, clients
    assert next(steps, None) is None


def scores(model: nn.Module, data: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, Any]:
    model.eval()
    with torch.no_grad():
        logits = model(torch.from_numpy(data["x"][rows])).numpy()
    model.train()
    return ltr.compat_scores(logits, data["Target"][rows], data["group"][rows], 2)


def test_weights_and_scores_of_the_whole_run(name: str, content: dict[str, Any], data: dict[str, np.ndarray]) -> None:
    run = content["runs"][name]
    matrix: dict[tuple[str, int], list[Any]] = {
        (part, k): [] for part in ("val", "test") for k in range(run["args"]["num_clients"])
    }
    raw = not name.startswith("SWAD")  # test scores there are of the averaged models
    for _, clients in replay(run, content, data):
        for part, k in matrix:
            own = [
                np.flatnonzero((data["client"] == k) & (data["split"] == part) & (data["task"] == t)) for t in (0, 1)
            ]
            matrix[part, k].append([scores(clients[k].model, data, rows) for rows in own])
    for k, client in enumerate(clients):
        for key, expected in tensors(run["final"][k]).items():
            torch.testing.assert_close(client.model.state_dict()[key], expected, **CLOSE)
    for (part, k), rows in matrix.items():
        expected = run["metrics"]["per_client"][k]
        if part == "val" or raw:
            assert [[s["acc"] for s in row] for row in rows] == expected[f"{part}_acc"]
            assert [[s["ltr"] for s in row] for row in rows] == expected[f"{part}_per_category_acc"]
        if part == "test" and raw:
            found = ltr.cumulative(np.array([[s["ltr"] for s in row] for row in rows]))
            np.testing.assert_allclose(found, expected["test_cumulative_ltr"], rtol=1e-12)
    if raw:
        check_holdout(run, clients, data)


def check_holdout(run: dict[str, Any], clients: list[Client], data: dict[str, np.ndarray]) -> None:
    rows = np.flatnonzero(data["split"] == "holdout")
    for k, client in enumerate(clients):
        found, expected = scores(client.model, data, rows), run["metrics"]["per_client"][k]["holdout"]
        assert {n: found[n] for n in ("acc", "loss", "auc")} == {n: expected[n] for n in ("acc", "loss", "auc")}
        for part in ("per_class", "per_group"):
            assert found[part] == list(expected[part].values())


def test_plain_batches_are_the_originals(content: dict[str, Any], data: dict[str, np.ndarray]) -> None:
    run = content["runs"].get("fedavg") or pytest.skip("no run fedavg")
    args = run["args"]
    plan = TaskPasses(0, args["batch_size"], args["num_iters"], args["num_rounds"], "stored", merge_single=False)
    found = []
    for round in range(args["num_tasks"] * args["num_rounds"]):
        for k in range(args["num_clients"]):
            task = round // args["num_rounds"]
            own = np.flatnonzero((data["client"] == k) & (data["split"] == "train") & (data["task"] == task))
            found += [own[positions].tolist() for (positions,) in plan.batches(k, round, len(own))]
    assert found == run["steps"]


def test_swad_model_of_one_evaluation_per_task(content: dict[str, Any], data: dict[str, np.ndarray]) -> None:
    """Mean of the last task's iterates, then batch-norm statistics from the next 500 batches of the same loader."""
    run = content["runs"].get("SWAD_1") or pytest.skip("no run SWAD_1")
    args = run["args"]
    *_, (task, clients) = replay(run, content, data)
    plan = TaskPasses(0, args["batch_size"], args["num_iters"], args["num_rounds"], "stored", merge_single=False)
    begun = args["num_rounds"] * args["num_iters"]
    for k, client in enumerate(clients):
        expected = run["swad_final"][str(k)]
        assert client.swad.count == expected["n_averaged"]
        client.vector.weights.copy_(client.swad.mean)
        own = np.flatnonzero((data["client"] == k) & (data["split"] == "train") & (data["task"] == task))
        batches = [batch_of(data, own[p].tolist()).x for (p,) in plan.from_step(k, task, begun, len(own), 500)]
        refresh_batch_norm(client.model, batches)
        for key, value in tensors(expected).items():
            torch.testing.assert_close(client.model.state_dict()[key], value, **CLOSE)
        if "holdout" in run["metrics"]["per_client"][k]:
            rows = np.flatnonzero(data["split"] == "holdout")
            assert scores(client.model, data, rows)["acc"] == run["metrics"]["per_client"][k]["holdout"]["acc"]
