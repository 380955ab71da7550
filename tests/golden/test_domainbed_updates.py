"""Six updates of every algorithm, by the original's numbers: parameters, metrics, predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from fedhpc import registry
from fedhpc.data.samples import Batch
from fedhpc.models import mlp_features
from fedhpc.models._layers import deepen_classifier
from fedhpc.models.base import ModelOptions, Network
from fedhpc.objectives._domains import DomainObjective
from fedhpc.objectives.base import StepReport
from fedhpc.objectives.hparams import plain
from fedhpc.objectives.setting import Setting
from fedhpc.tensors.vector import ParameterVector
from fedhpc.train.solver import LocalSolver
from tests.golden.domainbed_cases import Case, parametrize

TOLERANCE = 1e-9


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc)


@dataclass(frozen=True)
class RecordedDraws:
    """What the original drew in each update."""

    draws: list[dict[str, Any]]

    def permutation(self, step: int, n: int) -> list[int]:
        return self.draws[step]["permutation"]

    def mixing(self, step: int, pair: int, alpha: float) -> float:
        return self.draws[step]["lambdas"][pair]


def profile_of(case: Case) -> str:
    """The code before the published tables knew no nonlinear classifier, so its hyperparameters do not name it."""
    return "head" if "nonlinear_classifier" in case.facts["hparams"] else "paper"


def model_of(case: Case, init: dict[str, np.ndarray]) -> Network:
    layers = [init[f"featurizer.{n}.weight"] for n in hidden_layers(case.facts["hparams"]["mlp_depth"])]
    shape, classes = tuple(case.facts["input_shape"]), case.facts["num_classes"]
    dropout = case.facts["hparams"]["mlp_dropout"]
    model = mlp_features.MlpFeatures(shape, classes, ModelOptions(tuple(len(w) for w in layers), dropout))
    if case.facts["hparams"].get("nonlinear_classifier"):
        deepen_classifier(model)
    return model.double()


def hidden_layers(depth: int) -> list[str]:
    return ["input", *(f"hiddens.{i}" for i in range(depth - 2)), "output"]


def ours(name: str) -> str:
    """Our name of one of the original's parameters, in the objective's state dict."""
    if name.startswith(("discriminator.", "class_embeddings.")):
        return name
    return f"model.{name.replace('featurizer.', 'body.')}"


class Replay:
    """One recorded training, played through the solver."""

    def __init__(self, case: Case) -> None:
        self.case, self.arrays = case, case.arrays()
        init = {k.removeprefix("init/"): v for k, v in self.arrays.items() if k.startswith("init/")}
        model = model_of(case, init)
        vector = ParameterVector(model)
        setting = Setting(
            num_environments=case.facts["num_domains"],
            hparams=case.facts["hparams"],
            profile=profile_of(case),
            draws=RecordedDraws(case.facts["draws"]),
        )
        objective = registry.load("fedhpc.objectives", plain(case.facts["algorithm"])).OBJECTIVE
        self.objective: DomainObjective = objective(model, vector, setting)
        state = self.objective.state_dict()
        assert {ours(name) for name in init} <= state.keys()
        with torch.no_grad():
            for name, value in init.items():
                state[ours(name)].copy_(torch.from_numpy(value))
        self.solver = LocalSolver(vector, self.objective, self.objective.main_optimizer())
        self.objective.train()

    def minibatches(self, update: int) -> list[Batch]:
        return [
            Batch(
                torch.from_numpy(self.arrays[f"x/{update}/{d}"]).double(),
                torch.from_numpy(self.arrays[f"y/{update}/{d}"]),
            )
            for d in range(self.case.facts["num_domains"])
        ]

    def step(self, update: int) -> StepReport:
        return self.solver.step(self.minibatches(update))

    def scores(self) -> np.ndarray:
        self.objective.eval()
        with torch.no_grad():
            scores = self.objective.predict(torch.from_numpy(self.arrays["probe_x"]).double())
        self.objective.train()
        return scores.numpy()

    def assert_parameters(self, update: int) -> None:
        state = self.objective.state_dict()
        for name in self.case.facts["parameter_order"]:
            expected = self.arrays[f"f64/params/{name}"][update]
            np.testing.assert_allclose(state[ours(name)], expected, rtol=0, atol=TOLERANCE, err_msg=name)


def assert_metrics(report: StepReport, expected: dict[str, float]) -> None:
    found = {name: float(value) for name, value in (report.metrics or {"loss": report.loss}).items()}
    assert found == pytest.approx(expected, rel=0, abs=TOLERANCE)


def test_updates(update_case: Case) -> None:
    replay, results = Replay(update_case), update_case.facts["results"]["f64"]
    np.testing.assert_allclose(replay.scores(), replay.arrays["f64/probe0"], rtol=0, atol=TOLERANCE)
    for update in range(update_case.facts["n_updates"]):
        report = replay.step(update)
        assert_metrics(report, results["metrics"][update])
        extra = results["extra"][update]
        if "q" in extra:
            np.testing.assert_allclose(replay.objective.q, extra["q"], rtol=0, atol=TOLERANCE)
        assert extra.get("optimizer_replaced", bool(report.resets)) == bool(report.resets)
        kind = {"main": "generator", "discriminator": "discriminator"}[report.steps[0]]
        assert extra.get("step_kind", kind) == kind
        replay.assert_parameters(update)
        np.testing.assert_allclose(replay.scores(), replay.arrays["f64/probe"][update], rtol=0, atol=TOLERANCE)


def test_updates_go_on_from_a_checkpoint(update_case: Case) -> None:
    """What `own_state` and the solver's `state` hold is all that later updates depend on."""
    first, second = Replay(update_case), Replay(update_case)
    half = update_case.facts["n_updates"] // 2
    for update in range(half):
        first.step(update)
    second.objective.model.load_state_dict(first.objective.model.state_dict())
    second.objective.load_own_state({k: v.clone() for k, v in first.objective.own_state().items()})
    second.solver.load_state(first.solver.state())
    for update in range(half, update_case.facts["n_updates"]):
        second.step(update)
        second.assert_parameters(update)
