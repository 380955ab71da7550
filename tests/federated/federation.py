"""Small federations for tests: real engines on one rank, clients in memory, everything in float64."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fedhpc import registry
from fedhpc.comm.world import SoloWorld, World
from fedhpc.data.batches import BatchPlan, ShuffledBatches
from fedhpc.data.samples import Samples
from fedhpc.federated.algorithm import FederatedAlgorithm
from fedhpc.federated.algorithms.fedavg import FedAvg
from fedhpc.federated.algorithms.feddyn import FedDyn
from fedhpc.federated.algorithms.fedprox import FedProx
from fedhpc.federated.algorithms.scaffold import Scaffold
from fedhpc.federated.cohorts import CohortPlan, ListedCohorts
from fedhpc.federated.engine import Engine
from fedhpc.federated.host import SumSettings
from fedhpc.federated.personalize import Personalizer
from fedhpc.federated.state import EngineSettings, Snapshot
from fedhpc.models.base import ModelOptions
from fedhpc.objectives.base import Objective
from fedhpc.tensors.vector import ParameterVector
from fedhpc.train.local import LocalSettings, LocalTrainer
from fedhpc.train.solver import LocalSolver
from tests.golden.fl_parts import Clients

FEATURES, CLASSES = 4, 3

ALGORITHMS: dict[str, FederatedAlgorithm] = {
    "fedavg": FedAvg(),
    "fedprox": FedProx(mu=0.1),
    "feddyn": FedDyn(alpha=0.1),
    "scaffold": Scaffold(),
    "scaffold option 1": Scaffold(option=1),
}
"""The rules of the study, with values at which each of their terms shows."""


def make_clients(sizes: Sequence[int] = (6, 9, 12), num_test: int = 5, seed: int = 0) -> Clients:
    """Clients of the given training sizes; each has its own shift, so that their optima differ. It can be learned."""
    noise = torch.Generator().manual_seed(seed)

    def samples(n: int, client: int) -> Samples:
        raw = torch.randn(n, FEATURES, generator=noise, dtype=torch.float64)
        return Samples((raw + client).view(n, FEATURES, 1, 1), raw[:, :CLASSES].argmax(1))

    return Clients([samples(n, c) for c, n in enumerate(sizes)], [samples(num_test, c) for c, _ in enumerate(sizes)])


def mlp(hidden: tuple[int, ...] = (5,), dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(1)
    build = registry.load("fedhpc.models", "mlp").MODEL
    return build((FEATURES, 1, 1), CLASSES, ModelOptions(hidden=hidden, dropout=dropout)).double()


class NormNet(nn.Module):
    """Batch norm in front of a linear layer, with the parts that objectives ask for."""

    num_features = FEATURES

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.norm = nn.BatchNorm1d(FEATURES)
        self.dropout = nn.Identity()
        self.classifier = nn.Linear(FEATURES, CLASSES)

    def features(self, x: Tensor) -> Tensor:
        return self.norm(x.flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))


@dataclass
class Border:
    """What the engine shows to a checkpoint at a round border, copied."""

    round: int
    vectors: dict[str, Tensor]
    avg_selected: Tensor
    avg_all: Tensor | None
    buffers: Tensor
    counters: Tensor
    clients: dict[int, dict[str, Tensor]]


@dataclass
class Recorder:
    """Keeps every round border, and every client's weights after its local training."""

    borders: list[Border] = field(default_factory=list)
    local: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    def save(self, snapshot: Snapshot) -> None:
        server, states = snapshot.server, snapshot.states
        assert server is not None
        self.borders.append(
            Border(
                snapshot.progress.round,
                {name: vector.clone() for name, vector in server.vectors.items()},
                server.avg_selected.clone(),
                None if server.avg_all is None else server.avg_all.clone(),
                server.buffers.clone(),
                server.counters.clone(),
                {c: {name: v.clone() for name, v in states.get(c).items()} for c in states.clients()},
            )
        )

    def client_done(self, round: int, client: int, weights: Tensor) -> None:
        self.local[round, client] = weights.clone()


@dataclass
class MemorySink:
    """Keeps every record as (what, value, round, where)."""

    records: list[tuple[str, float, int, dict[str, Any]]] = field(default_factory=list)
    rounds: int = 0
    diverged: list[dict[int, str]] = field(default_factory=list)

    def record(self, what: str, value: float, unit: str, round: int, seconds: float, **where: Any) -> None:
        self.records.append((what, value, round, where))

    def round_done(self, progress: Any, summary: Any, times: Any) -> None:
        self.rounds += 1
        self.diverged.append(summary.diverged)

    def evaluated(self, *args: Any) -> None: ...

    def values(self, what: str, **where: Any) -> list[float]:
        return [v for w, v, _, at in self.records if w == what and where.items() <= at.items()]


@dataclass
class Federation:
    """An engine with everything a test wants to look at."""

    engine: Engine
    trainer: LocalTrainer
    clients: Clients
    recorder: Recorder
    sink: MemorySink
    world: World

    def run(self) -> Federation:
        self.engine.run()
        return self

    @property
    def weights(self) -> Tensor:
        assert self.engine.server is not None
        return self.engine.server.vectors["weights"]

    def server(self, name: str) -> Tensor:
        assert self.engine.server is not None
        return self.engine.server.vectors[name]


def identity(x: Tensor, noise: torch.Generator | None, train: bool) -> Tensor:
    """Samples are model input already."""
    return x


def make_trainer(
    model: nn.Module,
    batches: BatchPlan | None = None,
    *,
    objective: str | type[Objective] = "erm",
    options: dict[str, Any] | None = None,
    lr: float = 0.1,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    optimizer: Callable[..., torch.optim.Optimizer] | None = None,
    transform: Callable[..., Tensor] = identity,
    seed: int = 0,
) -> LocalTrainer:
    """A trainer; `optimizer` builds from parameters (default: plain SGD)."""
    vector = ParameterVector(model)
    kind = registry.load("fedhpc.objectives", objective).OBJECTIVE if isinstance(objective, str) else objective
    built = kind(model, vector, **(options or {}))
    make = optimizer or functools.partial(torch.optim.SGD, lr=lr, weight_decay=weight_decay)
    solver = LocalSolver(vector, built, make, clip)
    plan = batches or ShuffledBatches(seed, 4, epochs=1)
    return LocalTrainer(vector, built, solver, transform, plan, LocalSettings(seed, lr, lr_decay, weight_decay))


def federate(
    algorithm: FederatedAlgorithm | None = None,
    *,
    clients: Clients | None = None,
    cohorts: CohortPlan | Sequence[Sequence[int]] | None = None,
    rounds: int = 2,
    model: nn.Module | None = None,
    trainer: LocalTrainer | None = None,
    sums: SumSettings | None = None,
    personalizer: Personalizer | None = None,
    saver: Any = None,
    stop_requested: Callable[[], bool] = lambda: False,
    world: World | None = None,
    settings: dict[str, Any] | None = None,
    **training: Any,
) -> Federation:
    """Build an engine; `training` goes to `make_trainer`, `settings` to `EngineSettings`."""
    clients = clients or make_clients()
    everyone = range(len(clients.trains))
    plan = cohorts if hasattr(cohorts, "largest") else ListedCohorts(cohorts or [list(everyone)] * rounds)
    trainer = trainer or make_trainer(model or mlp(), **training)
    recorder, sink, world = Recorder(), MemorySink(), world or SoloWorld()
    chosen = {"evaluate_every": 10**6, "checkpoint_every": 1, "sums": sums or SumSettings(), **(settings or {})}
    engine = Engine(
        world,
        algorithm or FedAvg(),
        trainer,
        clients,
        plan,
        EngineSettings(rounds, **chosen),
        sink,
        saver=saver or recorder,
        stop_requested=stop_requested,
        observer=recorder,
        personalizer=personalizer,
    )
    return Federation(engine, trainer, clients, recorder, sink, world)


def norm_federation(algorithm: FederatedAlgorithm | None = None, **options: Any) -> Federation:
    """A federation with batch norm; no client has a last batch of one sample."""
    clients = options.pop("clients", None) or make_clients((6, 10, 14))
    return federate(algorithm, model=NormNet().double(), clients=clients, **options)


def same(a: Border, b: Border) -> bool:
    """Whether two round borders are equal bit for bit."""
    return (
        a.vectors.keys() == b.vectors.keys()
        and all(torch.equal(a.vectors[k], b.vectors[k]) for k in a.vectors)
        and torch.equal(a.buffers, b.buffers)
        and torch.equal(a.counters, b.counters)
        and a.clients.keys() == b.clients.keys()
        and all(torch.equal(v, b.clients[c][k]) for c, state in a.clients.items() for k, v in state.items())
    )
