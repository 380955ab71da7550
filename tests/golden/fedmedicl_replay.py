"""Replays the original's toy trainings with this package's parts, from the batches that were recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedhpc.data.balanced import TaskPasses
from fedhpc.data.samples import Batch
from fedhpc.medical.longtail import head_names, refresh_batch_norm
from fedhpc.medical.swad import CompatSwad, RunningMean
from fedhpc.models.base import ModelOptions, Network
from fedhpc.objectives.batch_mixup import BatchMixup
from fedhpc.objectives.erm import Erm
from fedhpc.objectives.setting import Setting
from fedhpc.report import ltr
from fedhpc.tensors.accumulator import add_weighted_
from fedhpc.tensors.vector import ParameterVector
from fedhpc.train.solver import LocalSolver
from tests.golden.fedmedicl_cases import FILE, Case, contents, found_cases, tables

NAMES = {
    "backbone_layers.0.weight": "linear.weight",
    "backbone_layers.0.bias": "linear.bias",
    "backbone_layers.1.weight": "norm.weight",
    "backbone_layers.1.bias": "norm.bias",
    "backbone_layers.1.running_mean": "norm.running_mean",
    "backbone_layers.1.running_var": "norm.running_var",
    "output_layer.weight": "classifier.weight",
    "output_layer.bias": "classifier.bias",
}
REFRESHED = 500
"""Batches from which the original estimates batch-norm statistics anew."""


class Tiny(Network):
    def __init__(self, num_inputs: int, num_features: int, num_classes: int) -> None:
        super().__init__(num_features, ModelOptions())
        self.linear, self.norm = nn.Linear(num_inputs, num_features), nn.BatchNorm1d(num_features)
        self.classifier = nn.Linear(num_features, num_classes)

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

    def __init__(self, run: Case, state: Case) -> None:
        inner, outer = np.shape(state["backbone_layers.0.weight"]), np.shape(state["output_layer.weight"])
        self.model = Tiny(inner[1], inner[0], outer[0]).double()
        self.model.load_state_dict(tensors(state) | {"norm.num_batches_tracked": torch.tensor(0)})
        self.vector = ParameterVector(self.model)
        self.draws = Given()
        kind = BatchMixup if run["algorithm"] == "mixup" else Erm
        self.objective = kind(self.model, self.vector, Setting(draws=self.draws))
        options = {"lr": run["lr"], "momentum": run["momentum"], "weight_decay": run["args"]["weight_decay"]}
        self.optimizer = partial(torch.optim.SGD, **options)
        self.solver = LocalSolver(self.vector, self.objective, self.optimizer)
        self.segment: RunningMean[Tensor] = RunningMean()
        self.last = self.segment
        self.swad: CompatSwad[Tensor] = CompatSwad()
        self.steps = 0


def tensors(state: Case) -> dict[str, Tensor]:
    return {NAMES[k]: torch.tensor(v, dtype=torch.float64) for k, v in state.items() if k in NAMES}


@dataclass(frozen=True, eq=False)
class Data:
    """The toy table."""

    client: np.ndarray
    task: np.ndarray
    label: np.ndarray
    group: np.ndarray
    split: np.ndarray
    x: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[dict[str, str]]) -> Data:
        column = {name: np.array([int(r[name]) for r in rows]) for name in ("client", "task", "Target", "Age_binary")}
        split = np.array([r["split"] for r in rows])
        train = np.bincount(column["Age_binary"][split == "train"], minlength=2)
        group = column["Age_binary"] if train[0] >= train[1] else 1 - column["Age_binary"]  # by descending size
        features = [name for name in rows[0] if name[0] == "f" and name[1:].isdigit()]
        x = np.array([[float(r[name]) for name in features] for r in rows])
        return cls(column["client"], column["task"], column["Target"], group, split, x)

    def own(self, client: int, part: str, task: int) -> np.ndarray:
        return np.flatnonzero((self.client == client) & (self.split == part) & (self.task == task))

    def batch(self, rows: Sequence[int]) -> Batch:
        return Batch(torch.from_numpy(self.x[rows]), torch.from_numpy(self.label[rows]))

    def scores(self, model: nn.Module, rows: np.ndarray) -> dict[str, Any]:
        model.eval()
        with torch.no_grad():
            logits = model(torch.from_numpy(self.x[rows])).numpy()
        model.train()
        return ltr.compat_scores(logits, self.label[rows], self.group[rows], 2)


def runs_in(folder: Path) -> list[Case]:
    """All runs of all files, each with `init` and `data` (None without its table)."""
    found = []
    for path, content in contents(folder):
        if "init" in content and "runs" in content:
            stored = {file.name: rows for file, rows in tables(path.parent)}
            others = (table for table in stored.values() if table and "f0" in table[0])
            rows = stored.get(content.get("data_file")) or next(others, None)
            same = [run for run in found_cases(folder, "runs", "steps", "args", "final") if run[FILE] == path]
            found += [{"init": content["init"], "data": rows and Data.of(rows), **run} for run in same]
    return found


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


def replay(run: Case) -> Iterator[tuple[int, list[Client]]]:
    """Run it all; yield the clients at the end of every task."""
    args, data = run["args"], run["data"]
    clients = [Client(run, state) for state in run["init"][: args["num_clients"]]]
    steps, draws = iter(run["steps"]), iter(run.get("mixup", []))
    per_evaluation = max(args["num_rounds"] // args["num_evaluations"], 1)
    for task in range(args["num_tasks"]):
        for client in clients:
            client.segment, client.swad, client.steps = RunningMean(), CompatSwad(), 0
        for round in range(1, args["num_rounds"] + 1):
            for client in clients:
                for _ in range(args["num_iters"]):
                    rows = next(steps)
                    if run["algorithm"] == "mixup":
                        draw = next(draws)
                        client.draws.share, client.draws.order = draw["lam"], draw["perm"]
                    client.solver.step([data.batch(rows)])
                    client.segment.add(client.vector.weights.clone())
                    client.steps += 1
                if run["algorithm"] == "CRT":
                    train_head(client, [data.batch(next(steps)) for _ in range(args["num_iters"])])
            if args["use_fl"]:
                average(clients, not args["average_all_layers"])
            if round == args["num_rounds"] or round % per_evaluation == 0:
                for k, client in enumerate(clients):
                    loss = data.scores(client.model, data.own(k, "val", task))["loss"]
                    client.swad.evaluated(client.segment.mean, client.steps, loss)
                    client.last, client.segment = client.segment, RunningMean()
        yield task, clients
    assert next(steps, None) is None
    assert next(draws, None) is None


def averaged_model(run: Case, client: Client, number: int, task: int) -> tuple[Tiny, int]:
    """SWAD's model at the end of a task, its batch norm refreshed, and how many models it is the mean of."""
    args, data = run["args"], run["data"]
    model = Tiny(client.model.linear.in_features, client.model.num_features, client.model.classifier.out_features)
    vector = ParameterVector(model.double())
    vector.weights.copy_(client.swad.result())
    num = client.last.count if client.swad.mean is None else client.swad.num_averaged
    own = data.own(number, "train", task)
    begun = args["num_rounds"] * args["num_iters"]
    drawn = stored_passes(run).from_step(number, task, begun, len(own), REFRESHED)
    refresh_batch_norm(model, [data.batch(own[p].tolist()).x for (p,) in drawn])
    return model, num


def stored_passes(run: Case) -> TaskPasses:
    """The original's plain loader; CRT takes twice as many batches in a round."""
    args = run["args"]
    steps = args["num_iters"] * (2 if run["algorithm"] == "CRT" else 1)
    return TaskPasses(0, args["batch_size"], steps, args["num_rounds"], "stored", merge_single=False)
