"""Plays known-answer cases of the federated algorithms through the real engine and compares every round.

As a program it plays all cases of a folder on the ranks it was started on: `mpirun -n 4 python fl_cases.py FOLDER`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fl_parts import (
    Case,
    Clients,
    Quadratic,
    Recorder,
    Silent,
    algorithm_of,
    clients_of,
    model_of,
    objective_of,
    trainer_of,
)
from torch import Tensor, nn

from fedhpc.comm.world import World, open_world
from fedhpc.data.samples import Samples
from fedhpc.federated.algorithm import FederatedAlgorithm
from fedhpc.federated.cohorts import ListedCohorts
from fedhpc.federated.engine import Engine
from fedhpc.federated.evaluation import summarize
from fedhpc.federated.host import SumSettings
from fedhpc.federated.personalize import AdaptByGradient, NearestPrototype
from fedhpc.federated.state import EngineSettings
from fedhpc.tensors.vector import ParameterVector
from fedhpc.train.evaluate import Counts
from fedhpc.train.local import LocalTrainer

TOLERANCE = 1e-10
FINE_GRID, DEFAULT_GRID = 44, 40
"""Logits magnify the default grid's 1e-12 a hundredfold, so full comparisons take a finer one (entries below 2^7)."""


def engine_of(
    world: World,
    case: Case,
    clients: Clients,
    recorder: Recorder,
    algorithm: FederatedAlgorithm | None = None,
    grid_bits: int = FINE_GRID,
) -> tuple[Engine, LocalTrainer]:
    """The real engine with the case's participants, batches and initial weights."""
    hyper = case["hyper"]
    model = model_of(case["model"])
    vector = ParameterVector(model)
    vector.weights.copy_(torch.tensor(case["initial_params"], dtype=torch.float64))
    objective = objective_of(model, vector, hyper)
    if "support_query" in case:
        steps = [{c: [tuple(s) for s in v] for c, v in r.items()} for r in case["support_query"]]
    else:
        steps = [{c: [(s,) for s in v] for c, v in r.items()} for r in case["batches"]]
    trainer = trainer_of(
        vector, objective, steps, hyper["lr"], hyper["lr_decay"], hyper["weight_decay"], hyper["max_norm"]
    )
    settings = EngineSettings(
        len(case["participation"]),
        evaluate_every=10**6,
        checkpoint_every=1,
        follow_all=True,
        sums=SumSettings(grid_bits),
    )
    cohorts = ListedCohorts(case["participation"])
    rule = algorithm or algorithm_of(hyper)
    return Engine(
        world, rule, trainer, clients, cohorts, settings, Silent(), saver=recorder, observer=recorder
    ), trainer


class Differences:
    """Collects where numbers are further apart than allowed.

    Attributes:
        found: one line each.
        largest: largest distance of all.
        broadcast: largest distance of broadcast_next, per round.
    """

    def __init__(self, tolerance: float = TOLERANCE) -> None:
        self.found: list[str] = []
        self.largest = 0.0
        self.broadcast: list[float] = []
        self._tolerance = tolerance

    def add(self, where: str, got: Any, expected: Any) -> None:
        got, expected = np.asarray(got, dtype=np.float64), np.asarray(expected, dtype=np.float64)
        if got.shape != expected.shape:
            self.found.append(f"{where}: shape {got.shape}, expected {expected.shape}")
            return
        apart = float(np.abs(got - expected).max(initial=0.0))
        self.largest = max(self.largest, apart)
        if where.endswith("broadcast_next"):
            self.broadcast.append(apart)
        if not apart <= self._tolerance:
            self.found.append(f"{where}: {apart:.3g} apart")


def play(
    world: World,
    folder: Path,
    name: str,
    algorithm: FederatedAlgorithm | None = None,
    *,
    grid_bits: int = FINE_GRID,
    hyper: Mapping[str, Any] | None = None,
) -> Differences | None:
    """Run one case and compare it; the differences on root, None elsewhere.

    `algorithm` and `hyper` replace what the file says: wrong programs, which must be told from right ones.
    """
    case = json.loads((folder / name).read_text())
    case["hyper"] |= hyper or {}
    clients = clients_of(folder, case["data"])
    recorder = Recorder()
    engine, trainer = engine_of(world, case, clients, recorder, algorithm, grid_bits)
    engine.run()
    local = world.gather(recorder.local)
    states = world.gather([r["clients"] for r in recorder.rounds])
    if local is None or states is None:
        return None
    differences = Differences()
    merged = {key: value for found in local for key, value in found.items()}
    for index, expected in enumerate(case["rounds"]):
        clients_now = {c: s for found in states for c, s in found[index].items()}
        compare_round(differences, case, index, expected, recorder.rounds[index], merged, clients_now)
    if grid_bits >= FINE_GRID:
        compare_evaluation(differences, case, engine, trainer, clients)
    return differences


def compare_round(
    differences: Differences, case: Case, index: int, expected: Mapping[str, Any], got: Any, local: Any, states: Any
) -> None:
    """Every vector of one round."""
    at = f"round {expected['round']}"
    differences.add(f"{at} broadcast_next", got["vectors"]["weights"], expected["broadcast_next"])
    differences.add(f"{at} avg_selected", got["avg_selected"], expected["avg_selected"])
    differences.add(f"{at} avg_all", got["avg_all"], expected["avg_all"])
    for client, weights in expected["local_params"].items():
        differences.add(f"{at} local {client}", local[index, int(client)], weights)
    size = len(expected["broadcast_next"])

    def state(client: int, name: str) -> Tensor:
        return states[client][name] if client in states else torch.zeros(size, dtype=torch.float64)

    for client, control in enumerate(expected.get("client_c", [])):
        differences.add(f"{at} c_{client}", state(client, "control"), control)
    if "server_c_after_round" in expected:
        differences.add(f"{at} c", got["vectors"]["control"], expected["server_c_after_round"])
    for client, drift in enumerate(expected.get("client_drift_sum", [])):
        differences.add(f"{at} d_{client}", state(client, "drift"), drift)
    if "server_mean_drift_sum" in expected:
        differences.add(f"{at} mean d", got["vectors"]["mean_drift"], expected["server_mean_drift_sum"])
    if "server_h" in expected:
        alpha = case["hyper"]["alpha"]
        differences.add(f"{at} h", -alpha * got["vectors"]["mean_drift"], expected["server_h"])


def compare_evaluation(
    differences: Differences, case: Case, engine: Engine, trainer: LocalTrainer, clients: Clients
) -> None:
    """The three models, each plain and personalised, on every client's test samples."""
    assert engine.server is not None
    for which, kinds in case["final_evaluation"].items():
        for kind, expected in kinds.items():
            counts = []
            for client in range(len(clients.trains)):
                trainer.vector.weights.copy_(engine.server.model(which))
                predict = predictor_of(kind, expected, case, trainer, clients.train(client))
                trainer.objective.eval()
                scores = predict(clients.test(client).x).detach()
                at = f"{which} {kind} client {client}"
                if kind == "maml":
                    differences.add(f"{at} adapted", trainer.vector.weights, expected["adapted_params"][client])
                shown = scores[:, expected["classes"][client]] if kind == "proto" else scores
                differences.add(f"{at} logits", shown, expected["test_logits"][client])
                differences.add(f"{at} predictions", scores.argmax(1), expected["predictions"][client])
                correct = int((scores.argmax(1) == clients.test(client).y).sum())
                counts.append((client, Counts(correct, len(scores), 0.0)))
            summary = summarize(counts)
            differences.add(f"{which} {kind} accuracies", summary.accuracies, expected["client_accuracy"])
            differences.add(f"{which} {kind} mean", summary.mean, expected["mean_client_accuracy"])


def predictor_of(kind: str, expected: Mapping[str, Any], case: Case, trainer: LocalTrainer, train: Samples) -> Any:
    """The package's own personalisation."""
    if kind == "maml":
        how = expected["adaptation"]
        return AdaptByGradient(how["lr"], how["steps"], how["max_norm"]).predictor(trainer, train)
    if kind == "proto":
        return NearestPrototype(case["model"]["n_classes"]).predictor(trainer, train)
    return trainer.objective.model


def play_quadratic(world: World, folder: Path, name: str) -> Differences | None:
    """Run every trajectory of a quadratic file; the differences on root, None elsewhere."""
    case = json.loads((folder / name).read_text())
    size = len(case["theta0"])
    packed = [
        Samples(torch.tensor(np.append(np.ravel(a), b), dtype=torch.float64)[None], torch.zeros(1, dtype=torch.int64))
        for a, b in zip(case["A"], case["b"], strict=True)
    ]
    differences = Differences()
    for run in case["runs"]:
        rounds = case["participation"][run["participation_name"]][: len(run["broadcast"])]
        holder = nn.Module()
        holder.theta = nn.Parameter(torch.tensor(case["theta0"], dtype=torch.float64))
        vector = ParameterVector(holder)
        steps = [{str(c): [([0],)] * case["K"] for c in cohort} for cohort in rounds]
        trainer = trainer_of(vector, Quadratic(holder, vector), steps, case["lr"], 1.0, 0.0, None)
        hyper = {"weighting": "uniform", "global_lr": case.get("global_lr", 1.0), **run}
        settings = EngineSettings(len(rounds), evaluate_every=10**6, checkpoint_every=1, follow_all=True)
        recorder = Recorder()
        clients = Clients(packed, packed)
        Engine(
            world, algorithm_of(hyper), trainer, clients, ListedCohorts(rounds), settings, Silent(), saver=recorder
        ).run()
        if world.is_root:
            for got, expected in zip(recorder.rounds, run["broadcast"], strict=True):
                at = f"{run['participation_name']} {run['algorithm']} round {got['round']}"
                differences.add(at, got["vectors"]["weights"], np.asarray(expected).reshape(size))
    return differences if world.is_root else None


def kind_of(file: Path) -> str:
    """What a file holds, by its content: `case`, `quadratic` or something else."""
    content = json.loads(file.read_text())
    if isinstance(content, dict) and {"hyper", "rounds", "participation"} <= content.keys():
        return "case"
    return "quadratic" if isinstance(content, dict) and {"A", "b", "runs"} <= content.keys() else "other"


def cases_in(folder: Path) -> dict[str, str]:
    """File name -> kind of everything that can be played in a folder."""
    kinds = {f.name: kind_of(f) for f in sorted(folder.glob("*.json"))}
    return {name: kind for name, kind in kinds.items() if kind != "other"}


def main() -> None:
    """Play all cases of the folder given and print one line each; exit code 1 if any is off."""
    torch.set_num_threads(1)
    world, folder, bad = open_world(), Path(sys.argv[1]), 0
    for name, kind in cases_in(folder).items():
        differences = (play if kind == "case" else play_quadratic)(world, folder, name)
        if differences is not None:
            print(f"{name}: largest {differences.largest:.2g}", *differences.found[:3], sep="\n   ", flush=True)
            bad += bool(differences.found)
    world.close()
    sys.exit(1 if world.share(bad) else 0)


if __name__ == "__main__":
    main()
