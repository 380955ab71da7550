"""Medical runs: scores over tasks, groups and classes from records, joined over seeds, as tables.

Records (`fedhpc.medical.scores` writes them): `ltr`, `accuracy`, `auc` of a client's task (`client`, `task`) and of the
common hold-out (`holdout_ltr`, ...; `client` where every client has a model of its own), `class_accuracy_<c>` and
`group_accuracy_<g>` likewise, all at the rounds that end a task.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedhpc.config import read_yaml
from fedhpc.errors import ConfigError
from fedhpc.report.ltr import (
    backward_transfer,
    confidence_interval,
    cumulative,
    forgetting,
    last_row,
    mean_present,
    novel_and_known,
)
from fedhpc.runs.records import Record, read_records

TITLES = {
    "erm": "ERM",
    "fedavg": "FedAvg",
    "mixup": "F-MixUp",
    "swad": "F-SWAD",
    "er": "F-ER",
    "gb": "F-GB",
    "cb": "F-CB",
    "crt": "F-CRT",
}
"""Recipe -> what the paper calls it, in the order of its tables."""
HOLDOUT = "holdout_"


@dataclass
class MedicalRun:
    """Scores of one run; accuracies and areas are fractions.

    Attributes:
        name: of the run.
        recipe, algorithm, dataset, seed: from config.yaml.
        novel: index of the new class, None without one.
        local: score -> client -> [trained task, evaluated task].
        holdout: score -> client (None: the common model) -> value after each task.
    """

    name: str
    recipe: str
    algorithm: str
    dataset: str
    seed: int
    novel: int | None = None
    local: dict[str, dict[int, np.ndarray]] = field(default_factory=dict)
    holdout: dict[str, dict[int | None, np.ndarray]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What the paper calls the recipe, with the federated algorithm where it is not FedAvg."""
        title = TITLES.get(self.recipe, self.recipe)
        return title if self.algorithm == "fedavg" or self.recipe == "erm" else f"{title} + {self.algorithm}"

    def cumulative(self, score: str = "ltr") -> np.ndarray:
        """A_t, mean over clients: float64 [T]; empty without records."""
        return _mean([cumulative(matrix) for matrix in self.local.get(score, {}).values()])

    def over_clients(self, summary: Any, score: str = "ltr") -> float:
        """Mean over clients of a figure of their matrices."""
        return mean_present(np.array([summary(matrix) for matrix in self.local.get(score, {}).values()] or [math.nan]))

    def final_holdout(self, score: str) -> float:
        """Hold-out score after the last task, mean over models."""
        values = [series[-1] for series in self.holdout.get(f"{HOLDOUT}{score}", {}).values()]
        return mean_present(np.array(values or [math.nan]))

    def gap(self) -> float:
        """Best minus worst group on the hold-out after the last task, mean over models."""
        by_model: dict[int | None, list[float]] = defaultdict(list)
        for what, models in self.holdout.items():
            if what.startswith(f"{HOLDOUT}group_accuracy_"):
                for client, series in models.items():
                    by_model[client].append(series[-1])
        gaps = [np.nanmax(v) - np.nanmin(v) for v in by_model.values() if np.isfinite(v).sum() > 1]
        return float(np.mean(gaps)) if gaps else math.nan

    def novel_curves(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Accuracy on known classes and on the new one after each task: [models, T] each."""
        prefix = f"{HOLDOUT}class_accuracy_"
        found = {int(w.removeprefix(prefix)): by for w, by in self.holdout.items() if w.startswith(prefix)}
        if self.novel is None or not found:
            return None
        classes = [found[c] for c in sorted(found)]
        models = sorted(classes[0], key=lambda c: -1 if c is None else c)
        pairs = [
            [novel_and_known(np.array([by[m][t] for by in classes]), self.novel) for t in range(len(classes[0][m]))]
            for m in models
        ]
        return np.array(pairs)[:, :, 0], np.array(pairs)[:, :, 1]


def is_medical(directory: Path) -> bool:
    """Whether a run directory holds a medical run."""
    path = directory / "config.yaml"
    try:
        return path.is_file() and "scenario" in read_yaml(str(path))
    except ConfigError:
        return False


def read_medical(directory: Path, name: str) -> MedicalRun:
    """Read a run.

    Raises:
        FedhpcError: its records can't be read; names the file.
    """
    config = read_yaml(str(directory / "config.yaml"))
    scenario, recipe = config.get("scenario", {}), config.get("recipe") or {}
    run = MedicalRun(
        name=name,
        recipe=str(recipe.get("name", "fedavg")),
        algorithm=str((config.get("algorithm") or {}).get("name", "fedavg")),
        dataset=str((config.get("data") or {}).get("dataset", "")),
        seed=int(config.get("seed", 0)),
    )
    fill(run, read_records(directory / "metrics.jsonl"))
    if scenario.get("kind") == "novel_disease":
        index = int(scenario.get("novel_class", -1))
        classes = [w for w in run.holdout if w.startswith(f"{HOLDOUT}class_accuracy_")]
        run.novel = index if index >= 0 else len(classes) - 1
    return run


def fill(run: MedicalRun, records: Iterable[Record]) -> None:
    """Sort records into matrices: rounds in ascending order are the trained tasks."""
    local: dict[str, dict[int, dict[tuple[int, int], float]]] = defaultdict(lambda: defaultdict(dict))
    holdout: dict[str, dict[int | None, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for record in records:
        value = math.nan if record.value is None else record.value
        if record.what.startswith(HOLDOUT):
            holdout[record.what][record.client][record.round] = value
        elif record.task is not None and record.client is not None:
            local[record.what][record.client][record.round, record.task] = value
    for what, clients in local.items():
        run.local[what] = {client: _matrix(cells) for client, cells in sorted(clients.items())}
    for what, models in holdout.items():
        run.holdout[what] = {m: np.array([v for _, v in sorted(series.items())]) for m, series in models.items()}


def _matrix(cells: dict[tuple[int, int], float]) -> np.ndarray:
    """[trained task, evaluated task], NaN where nothing was recorded."""
    rounds = sorted({round for round, _ in cells})
    tasks = max(task for _, task in cells) + 1
    found = np.full((len(rounds), tasks), math.nan)
    for (round, task), value in cells.items():
        found[rounds.index(round), task] = value
    return found


def _mean(rows: Sequence[np.ndarray]) -> np.ndarray:
    return np.nanmean(np.stack(rows), 0) if rows else np.zeros(0)


COLUMNS = (
    ("cumulative LTR", lambda run: run.cumulative()[-1] if len(run.cumulative()) else math.nan),
    ("last-row LTR", lambda run: run.over_clients(last_row)),
    ("forgetting", lambda run: run.over_clients(forgetting)),
    ("backward transfer", lambda run: run.over_clients(backward_transfer)),
    ("hold-out LTR", lambda run: run.final_holdout("ltr")),
    ("hold-out AUC", lambda run: run.final_holdout("auc")),
    ("group gap", lambda run: run.gap()),
)
"""Title and reading of each column; fractions."""


def by_title(runs: Sequence[MedicalRun]) -> dict[str, list[MedicalRun]]:
    """Runs that differ in their seed only, in the paper's order."""
    order = list(TITLES)
    ranked = sorted(runs, key=lambda r: (order.index(r.recipe) if r.recipe in order else len(order), r.title, r.seed))
    found: dict[str, list[MedicalRun]] = {}
    for run in ranked:
        found.setdefault(run.title, []).append(run)
    return found


def medical_table(runs: Sequence[MedicalRun]) -> str:
    """One line per recipe: percent, mean over seeds and half the width of its 95 % confidence interval."""
    lines = [["recipe", "seeds", *(title for title, _ in COLUMNS)]]
    for title, same in by_title(runs).items():
        cells = [_cell([read(run) for run in same]) for _, read in COLUMNS]
        lines.append([title, str(len(same)), *cells])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    padded = ["  ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]
    note = (
        "percent, mean over seeds ± half of the 95 % confidence interval; group gap: best minus worst on the hold-out"
    )
    return "\n".join([padded[0], "  ".join("-" * w for w in widths), *padded[1:], "", note]) + "\n"


def _cell(values: Sequence[float]) -> str:
    mean, low, _ = confidence_interval(values)
    if math.isnan(mean):
        return "-"
    mean = round(mean, 6) + 0.0  # no minus before a zero
    return f"{100 * mean:.1f}" if math.isnan(low) else f"{100 * mean:.1f} ± {100 * abs(mean - low):.1f}"
