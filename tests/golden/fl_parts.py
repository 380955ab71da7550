"""What known-answer cases are played with: clients in memory, listed batches, and rules from their hyperparameters."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedhpc import registry
from fedhpc.data.samples import Batch, Samples
from fedhpc.federated.algorithm import FederatedAlgorithm
from fedhpc.federated.state import Snapshot
from fedhpc.models.base import ModelOptions
from fedhpc.objectives.base import Objective, StepReport
from fedhpc.tensors.vector import ParameterVector
from fedhpc.train.local import LocalSettings, LocalTrainer
from fedhpc.train.solver import LocalSolver

Case = dict[str, Any]


@dataclass
class Clients:
    """All clients' samples in memory, as float64 model input."""

    trains: list[Samples]
    tests: list[Samples]

    def __post_init__(self) -> None:
        self.num_train = [len(s) for s in self.trains]
        self.num_test = [len(s) for s in self.tests]

    def train(self, client: int) -> Samples:
        return self.trains[client]

    def test(self, client: int) -> Samples:
        return self.tests[client]


@dataclass
class ListedBatches:
    """The minibatches a case dictates: per round and client a list of steps, each a tuple of position lists."""

    rounds: list[Mapping[str, list[tuple[list[int], ...]]]]

    def batches(self, client: int, round: int, num_samples: int) -> Iterator[tuple[np.ndarray, ...]]:
        for step in self.rounds[round][str(client)]:
            yield tuple(np.asarray(positions, dtype=np.int64) for positions in step)

    def num_steps(self, num_samples: int) -> int:
        raise AssertionError("the engine takes the steps as they come")


@dataclass
class Recorder:
    """Keeps every round border as the engine shows it to a checkpoint, and every client's local result."""

    rounds: list[dict[str, Any]] = field(default_factory=list)
    local: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    def save(self, snapshot: Snapshot) -> None:
        server = snapshot.server
        self.rounds.append(
            {
                "round": snapshot.progress.round,
                "vectors": {k: v.clone() for k, v in server.vectors.items()} if server else {},
                "avg_selected": server.avg_selected.clone() if server else None,
                "avg_all": server.avg_all.clone() if server else None,
                "clients": {
                    c: {k: v.clone() for k, v in snapshot.states.get(c).items()} for c in snapshot.states.clients()
                },
            }
        )

    def client_done(self, round: int, client: int, weights: Tensor) -> None:
        self.local[round, client] = weights.clone()


class Silent:
    """A sink that keeps nothing."""

    def record(self, *args: Any, **where: Any) -> None: ...

    def round_done(self, *args: Any) -> None: ...

    def evaluated(self, *args: Any) -> None: ...


class Quadratic(Objective):
    """f(θ) = ½·(θ - b)ᵀA(θ - b); a client's only sample holds A and b."""

    def backward(self, minibatches: list[Batch]) -> StepReport:
        packed = minibatches[0].x[0]
        theta = self.vector.parameters[0]
        size = theta.numel()
        away = theta - packed[size * size :]
        loss = 0.5 * away @ packed[: size * size].view(size, size) @ away
        loss.backward()
        return StepReport(loss.detach())

    def predict(self, x: Tensor) -> Tensor:
        return torch.zeros(len(x), 2, dtype=x.dtype)


def algorithm_of(hyper: Mapping[str, Any]) -> FederatedAlgorithm:
    """The rule a case asks for, with its hyperparameters."""
    name = hyper["algorithm"]
    kind = registry.load("fedhpc.federated.algorithms", name).ALGORITHM
    profile = hyper.get("profile", "canonical")
    options: dict[str, Any] = {}
    if name in ("fedavg", "scaffold"):
        options["server_lr"] = hyper.get("global_lr", 1.0)
    if name in ("fedavg", "fedprox"):
        options["weighting"] = hyper["weighting"]
    if name == "fedprox":
        options["mu"] = hyper["mu"]
    if name == "feddyn":
        options |= {"alpha": hyper["alpha"], "profile": profile}
    if name == "scaffold":
        options |= {"option": hyper.get("option", 2), "profile": profile, "control_steps": hyper.get("K_const")}
    return kind(**options)


def clients_of(folder: Path, name: str) -> Clients:
    """The data file a case names."""
    found = json.loads((folder / f"{name}.json").read_text())["clients"]

    def samples(client: Mapping[str, Any], part: str) -> Samples:
        x, y = (client.get(f"{part}_{k}", client.get(f"{k}_{part}")) for k in "xy")  # both spellings are about
        inputs = torch.tensor(x, dtype=torch.float64)
        return Samples(inputs.view(len(inputs), -1, 1, 1), torch.tensor(y, dtype=torch.int64))

    return Clients([samples(c, "train") for c in found], [samples(c, "test") for c in found])


def model_of(spec: Mapping[str, Any]) -> nn.Module:
    """The package's own MLP in the size of a case."""
    hidden = () if spec["kind"] == "linear" else (spec["n_hidden"],)
    build = registry.load("fedhpc.models", "mlp").MODEL
    return build((spec["n_features"], 1, 1), spec["n_classes"], ModelOptions(hidden=hidden)).double()


def objective_of(model: nn.Module, vector: ParameterVector, hyper: Mapping[str, Any]) -> Objective:
    """The local objective of a case."""
    task = {"plain": "erm"}.get(hyper.get("task", "plain"), hyper.get("task", "erm"))
    options = {}
    if task == "maml":
        options = {"inner_lr": hyper["inner_lr"], "inner_steps": hyper["inner_steps"]}
        options |= {"order": hyper["maml_order"], "weight_decay": hyper["weight_decay"]}
    return registry.load("fedhpc.objectives", task).OBJECTIVE(model, vector, **options)


def trainer_of(
    vector: ParameterVector, objective: Objective, steps: Any, lr: float, decay: float, wd: float, clip: float | None
) -> LocalTrainer:
    """A trainer that follows dictated batches."""
    solver = LocalSolver(vector, objective, functools.partial(torch.optim.SGD, lr=lr, weight_decay=wd), clip)
    settings = LocalSettings(0, lr, decay, wd)
    return LocalTrainer(vector, objective, solver, lambda x, noise, train: x, ListedBatches(steps), settings)
