"""A report's figures, recomputed from a run's saved weights and the pixels, with scikit-learn and loops alone."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from sklearn.metrics import accuracy_score, log_loss, recall_score, roc_auc_score

from fedhpc.cli import main
from fedhpc.data.stores import open_store
from fedhpc.medical.config import load_medical
from fedhpc.report.medical_report import medical_files
from tests.conftest import REPOSITORY

TASKS, CLIENTS, ROUNDS, HIDDEN, CLASSES = 3, 3, 3, 16, 10
OPTIONS = (
    f"--rounds {ROUNDS} --scenario.tasks {TASKS} --scenario.clients {CLIENTS} --model.hidden [{HIDDEN}] "
    f"--scenario.groups [age,sex] --checkpoint.every {ROUNDS} --checkpoint.keep 9 --local.lr 0.2"
)
Scores = dict[str, float]


class Truth:
    """A run's samples, and what its saved models say of them."""

    def __init__(self, run: Path) -> None:
        config = load_medical(str(run / "config.yaml"))
        store = open_store("medical_digits", None)
        self.pixels = store.images(np.arange(store.num_samples)).reshape(store.num_samples, -1) / 16
        self.labels = store.table.labels
        self.timeline = config.scenario.timeline(store.table, config.seed)
        self._each: dict[int, list[list[Scores]]] = {}
        self._held: dict[int, list[Scores]] = {}
        self.own = config.recipe_name == "erm"
        self.saved = [run / "checkpoints" / f"round-{(t + 1) * ROUNDS:08d}" for t in range(TASKS)]
        ages, sexes = store.table.attributes["age"], store.table.attributes["sex"]
        tree = json.loads((run / "scenario.json").read_text())
        names = [f"{'60+' if age >= 60 else '0-59'}, sex {'MF'[sex]}" for age, sex in zip(ages, sexes, strict=True)]
        self.groups = np.array([tree["groups"].index(name) for name in names])

    def weights(self, task: int, client: int) -> np.ndarray:
        """Of the model that a client is tested with after a task."""
        if not self.own:
            return load_file(self.saved[task] / "server.safetensors")["vector.weights"].astype(np.float32)
        state = load_file(self.saved[task] / "clients-00000.safetensors")[str(client)]
        return state[: len(state) // 2]  # before the momentum

    def scores(self, task: int, client: int, rows: np.ndarray) -> Scores:
        """All figures of one model on some samples."""
        cuts = np.cumsum([HIDDEN * 64, HIDDEN, CLASSES * HIDDEN])
        w1, b1, w2, b2 = np.split(self.weights(task, client), cuts)
        hidden = np.maximum(self.pixels[rows] @ w1.reshape(HIDDEN, 64).T + b1, 0)
        logits = hidden @ w2.reshape(CLASSES, HIDDEN).T + b2
        shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        found, labels, groups = logits.argmax(1), self.labels[rows], self.groups[rows]
        accuracies = [accuracy_score(labels[groups == g], found[groups == g]) for g in sorted(set(groups))]
        fair = [ltr(labels[groups == g], found[groups == g]) for g in sorted(set(groups))]
        return {
            "accuracy": accuracy_score(labels, found),
            "ltr": ltr(labels, found),
            "compat_ltr": ltr(labels, found) * len(set(labels)) / CLASSES,
            "auc": pairs(labels, shares),
            "loss": log_loss(labels, shares, labels=range(CLASSES)),
            "absent_classes": CLASSES - len(set(labels)),
            "group_gap": max(accuracies) - min(accuracies) if len(accuracies) > 1 else math.nan,
            "group_ltr_gap": max(fair) - min(fair) if len(fair) > 1 else math.nan,
        }

    def each(self, client: int) -> list[list[Scores]]:
        """[trained task][evaluated task] of one client."""
        if client not in self._each:
            tests = self.timeline.test[client]
            self._each[client] = [[self.scores(i, client, tests[j]) for j in range(TASKS)] for i in range(TASKS)]
        return self._each[client]

    def matrix(self, client: int, score: str) -> list[list[float]]:
        """One score of them."""
        return [[cell[score] for cell in row] for row in self.each(client)]

    def holdout(self, task: int, score: str) -> float:
        """Mean over the models."""
        models = range(CLIENTS if self.own else 1)
        if task not in self._held:
            self._held[task] = [self.scores(task, client, self.timeline.holdout) for client in models]
        return statistics.fmean(found[score] for found in self._held[task])


def ltr(labels: np.ndarray, found: np.ndarray) -> float:
    present = sorted(set(labels))
    return float(recall_score(labels, found, labels=present, average="macro", zero_division=0))


def pairs(labels: np.ndarray, shares: np.ndarray) -> float:
    """Hand and Till's mean over the pairs of classes that are there."""
    areas = []
    for a in sorted(set(labels)):
        for b in sorted(set(labels) - {a}):
            rows = np.isin(labels, (a, b))
            areas.append(roc_auc_score(labels[rows] == a, shares[rows, a]))
    return statistics.fmean(areas)


def mean(values: list[float]) -> float:
    return statistics.fmean(v for v in values if not math.isnan(v))


def final_a(matrix: list[list[float]]) -> float:
    return mean([matrix[i][j] for i in range(TASKS) for j in range(i + 1)])


def forgotten(matrix: list[list[float]]) -> float:
    return mean([max(matrix[i][j] for i in range(j, TASKS)) - matrix[-1][j] for j in range(TASKS - 1)])


def transferred(matrix: list[list[float]]) -> float:
    return mean([matrix[-1][j] - matrix[j][j] for j in range(TASKS - 1)])


def last(matrix: list[list[float]]) -> float:
    return mean(matrix[-1])


LOCAL: dict[str, tuple[str, Callable[[list[list[float]]], float]]] = {
    "cumulative LTR": ("ltr", final_a),
    "cumulative LTR, absent class 0 (original)": ("compat_ltr", final_a),
    "last-row LTR": ("ltr", last),
    "forgetting": ("ltr", forgotten),
    "backward transfer": ("ltr", transferred),
    "local accuracy": ("accuracy", last),
    "local AUC": ("auc", last),
    "local group gap": ("group_gap", last),
    "local LTR gap between groups": ("group_ltr_gap", last),
    "local absent classes": ("absent_classes", last),
}
HOLDOUT = {
    "hold-out LTR": "ltr",
    "hold-out AUC": "auc",
    "group gap": "group_gap",
    "hold-out accuracy": "accuracy",
    "hold-out LTR gap between groups": "group_ltr_gap",
    "hold-out LTR, absent class 0 (original)": "compat_ltr",
}


@pytest.fixture(scope="module", params=["cb", "erm"])
def reported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Truth, dict[str, Any]]:
    """A common model, and one of each client."""
    run = tmp_path_factory.mktemp("pixels") / request.param
    config = str(REPOSITORY / "configs" / "smoke" / "medical" / f"{request.param}.yaml")
    with pytest.raises(SystemExit) as ended:
        main(["run", config, "--out", str(run), *OPTIONS.split()])
    assert not ended.value.code
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedhpc.report.medical_report._figures", lambda *_: {})  # slow
        _, files = medical_files([run], [run])
    return Truth(run), json.loads(files["medical.json"])


def test_figures_of_local_tasks(reported: tuple[Truth, dict[str, Any]]) -> None:
    truth, tree = reported
    told = {row["score"]: row["mean"] for row in tree["scores"]}
    for title, (score, summary) in LOCAL.items():
        by_client = [truth.matrix(client, score) for client in range(CLIENTS)]
        assert told[title] == pytest.approx(mean([summary(m) for m in by_client]), abs=2e-5), title
        joined = [[mean([m[i][j] for m in by_client]) for j in range(TASKS)] for i in range(TASKS)]
        np.testing.assert_allclose(np.array(tree["runs"][0]["matrix"][score], float), joined, atol=2e-5)
    assert told["local absent classes"] > 0, "or nothing is tried"


def test_figures_of_the_holdout(reported: tuple[Truth, dict[str, Any]]) -> None:
    truth, tree = reported
    told = {row["score"]: row["mean"] for row in tree["scores"]}
    for title, score in HOLDOUT.items():
        assert told[title] == pytest.approx(truth.holdout(TASKS - 1, score), abs=2e-5), title
    for task in range(TASKS):
        series = tree["runs"][0]["holdout"]["loss"].values()
        assert mean([values[task] for values in series]) == pytest.approx(truth.holdout(task, "loss"), rel=1e-5)
