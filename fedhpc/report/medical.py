"""Medical runs: scores over tasks, groups and classes, read from records.

Records (`fedhpc.medical.scores` writes them): `ltr`, `accuracy`, `auc` of a client's task (`client`, `task`) and of the
common hold-out (`holdout_ltr`, ...; `client` where every client has a model of its own), `class_accuracy_<c>` and
`group_accuracy_<g>` likewise, all at the rounds that end a task.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedhpc.config import read_yaml
from fedhpc.errors import ConfigError, FedhpcError
from fedhpc.report.ltr import cumulative, mean_present, novel_and_known
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
SCENARIO = "scenario.json"
COMPAT_LTR, GROUP_GAP, LTR_GAP = "compat_ltr", "group_gap", "group_ltr_gap"
"""Scores that are not recorded but follow from those that are: see `_derive`."""
NOT_KNOWN = "not known"
"""Name of the group of samples that lack an attribute; it is no side of a gap between groups."""


@dataclass
class MedicalRun:
    """Scores of one run; accuracies and areas are fractions, NaN where nothing was recorded.

    Attributes:
        name: of the run.
        recipe, algorithm, dataset, seed: from config.yaml.
        place: its directory.
        config: the resolved configuration.
        done: whether it came to its end.
        num_tasks: how many tasks it has; matrices and series have that many rows, whatever was reached.
        tree: content of scenario.json; empty without one.
        novel: index of the new class, None without one.
        local: score -> client -> [trained task, evaluated task].
        holdout: score -> client (None: the common model) -> value after each task.
    """

    name: str
    recipe: str
    algorithm: str
    dataset: str
    seed: int
    place: Path = field(default_factory=Path)
    config: Mapping[str, Any] = field(default_factory=dict)
    done: bool = False
    num_tasks: int = 0
    tree: Mapping[str, Any] = field(default_factory=dict)
    novel: int | None = None
    local: dict[str, dict[int, np.ndarray]] = field(default_factory=dict)
    holdout: dict[str, dict[int | None, np.ndarray]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What the paper calls the recipe, with the federated algorithm where it is not FedAvg."""
        title = TITLES.get(self.recipe, self.recipe)
        return title if self.algorithm == "fedavg" or self.recipe == "erm" else f"{title} + {self.algorithm}"

    @property
    def missing(self) -> list[int]:
        """Tasks, counted from 1, after which the models were not examined."""
        series = [s for name, models in self.holdout.items() if name == f"{HOLDOUT}accuracy" for s in models.values()]
        rows = [np.isfinite(matrix).any(1) for matrix in self.local.get("accuracy", {}).values()]
        seen = np.any([*rows, *(np.isfinite(s) for s in series), np.zeros(self.num_tasks, dtype=bool)], axis=0)
        return (np.flatnonzero(~seen) + 1).tolist()

    @property
    def finished(self) -> bool:
        """Whether there are scores after every task."""
        return self.num_tasks > 0 and not self.missing

    def known_classes(self, local: bool) -> dict[int, list[int]]:
        """Client -> classes that it can be asked about, where that is not all: in its tests, or in the hold-out."""
        narrow = local or (self.config.get("recipe") or {}).get("classes") == "environment"
        return dict(enumerate(self.tree.get("client_classes", ()))) if narrow else {}

    def cumulative(self, score: str = "ltr") -> np.ndarray:
        """A_t, mean over clients: float64 [T]; empty without records."""
        rows = [cumulative(matrix) for matrix in self.local.get(score, {}).values()]
        return mean_over(rows) if rows else np.zeros(0)

    def matrix(self, score: str = "ltr") -> np.ndarray:
        """Mean over clients, [trained task, evaluated task]; empty without records."""
        return mean_over(list(self.local.get(score, {}).values())) if self.local.get(score) else np.zeros((0, 0))

    def over_clients(self, summary: Any, score: str = "ltr") -> float:
        """Mean over clients of a figure of their matrices."""
        return mean_present(np.array([summary(matrix) for matrix in self.local.get(score, {}).values()] or [math.nan]))

    def final_holdout(self, score: str) -> float:
        """Hold-out score after the last task, mean over models."""
        values = [series[-1] for series in self.holdout.get(f"{HOLDOUT}{score}", {}).values()]
        return mean_present(np.array(values or [math.nan]))

    def novel_curves(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Accuracy on known classes and on the new one after each task: [models, T] each."""
        found = numbered(self.holdout, f"{HOLDOUT}class_accuracy_")
        if self.novel is None or self.novel not in found:
            return None
        classes = [self.holdout[found[c]] for c in sorted(found)]
        models = sorted(classes[0], key=lambda c: -1 if c is None else c)
        pairs = [
            [novel_and_known(np.array([by[m][t] for by in classes]), self.novel) for t in range(self.num_tasks)]
            for m in models
        ]
        return np.array(pairs)[:, :, 0], np.array(pairs)[:, :, 1]


def mean_over(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Entry by entry the mean of those that are not NaN; NaN where all are."""
    stacked = np.stack(arrays)
    there = ~np.isnan(stacked)
    sums = np.where(there, stacked, 0.0).sum(0)
    return np.divide(sums, there.sum(0), out=np.full(sums.shape, math.nan), where=there.any(0))


def numbered(names: Iterable[str], prefix: str) -> dict[int, str]:
    """Number -> name of the names that are a prefix and a number."""
    return {int(rest): name for name in names if (rest := name.removeprefix(prefix)) != name and rest.isdecimal()}


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
    scenario, recipe = config.get("scenario") or {}, config.get("recipe") or {}
    run = MedicalRun(
        name=name,
        recipe=str(recipe.get("name", "fedavg")),
        algorithm=str((config.get("algorithm") or {}).get("name", "fedavg")),
        dataset=str((config.get("data") or {}).get("dataset", "")),
        seed=int(config.get("seed", 0)),
        place=directory,
        config=config,
        done=(directory / "done").is_file(),
        tree=read_tree(directory / SCENARIO) or {},
    )
    run.num_tasks = int(run.tree.get("tasks") or scenario.get("tasks") or 0)
    fill(run, read_records(directory / "metrics.jsonl"), config.get("rounds"))
    if scenario.get("kind") == "novel_disease":
        index = int(scenario.get("novel_class", -1))
        run.novel = index if index >= 0 else len(numbered(run.holdout, f"{HOLDOUT}class_accuracy_")) - 1
    return run


def read_tree(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None where there is no such file.

    Raises:
        FedhpcError: it can't be read.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise FedhpcError(f"{path}: cannot be read as JSON ({error})") from None
    return found if isinstance(found, dict) else None


def fill(run: MedicalRun, records: Iterable[Record], rounds_per_task: int | None = None) -> None:
    """Sort records into matrices.

    Args:
        run: gets them.
        records: of the run.
        rounds_per_task: tells which task a round ends; None: the rounds in ascending order are the tasks.
    """
    local: dict[str, dict[int, dict[tuple[int, int], float]]] = defaultdict(lambda: defaultdict(dict))
    holdout: dict[str, dict[int | None, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for record in records:
        value = math.nan if record.value is None else record.value
        if record.what.startswith(HOLDOUT):
            holdout[record.what][record.client][record.round] = value
        elif record.task is not None and record.client is not None:
            local[record.what][record.client][record.round, record.task] = value
    ends = {r for models in holdout.values() for series in models.values() for r in series}
    ends |= {r for clients in local.values() for cells in clients.values() for r, _ in cells}
    row = {end: end // rounds_per_task - 1 if rounds_per_task else i for i, end in enumerate(sorted(ends))}
    tasks = {task for clients in local.values() for cells in clients.values() for _, task in cells}
    run.num_tasks = max([run.num_tasks, *(number + 1 for number in (*row.values(), *tasks))])
    for what, clients in local.items():
        run.local[what] = {client: np.full((run.num_tasks,) * 2, math.nan) for client in sorted(clients)}
        for client, cells in clients.items():
            for (round, task), value in cells.items():
                run.local[what][client][row[round], task] = value
    for what, models in holdout.items():
        run.holdout[what] = {model: np.full(run.num_tasks, math.nan) for model in models}
        for model, series in models.items():
            for round, value in series.items():
                run.holdout[what][model][row[round]] = value
    unknown = {number for number, name in enumerate(run.tree.get("groups", ())) if name == NOT_KNOWN}
    _derive(run.local, "", run.known_classes(local=True), unknown)
    _derive(run.holdout, HOLDOUT, run.known_classes(local=False), unknown)


def _derive(
    scores: dict[str, dict[Any, np.ndarray]],
    prefix: str,
    known: Mapping[int, Sequence[int]] | None = None,
    unknown: Set[int] = frozenset(),
) -> None:
    """Add the original's LTR (a class that is absent counts as 0, figures rounded) and gaps between groups.

    The original's clients have their own dataset's classes alone: `known` names those of each client. Groups in
    `unknown` are left out of gaps.
    """
    for name, source, rule in (
        (COMPAT_LTR, "class_accuracy_", _compat_ltr),
        (GROUP_GAP, "group_accuracy_", _gap),
        (LTR_GAP, "group_ltr_", _gap),
    ):
        found = {number: scores[key] for number, key in sorted(numbered(scores, prefix + source).items())}
        if rule is _gap:
            found = {number: by for number, by in found.items() if number not in unknown}
        asked = known if known and name == COMPAT_LTR else {}
        for owner in next(iter(found.values()), ()):
            own = [by[owner] for number, by in found.items() if number in asked.get(owner, found)]
            scores.setdefault(prefix + name, {})[owner] = rule(np.stack(own))


def _compat_ltr(classes: np.ndarray) -> np.ndarray:
    means = np.round(np.round(100 * np.nan_to_num(classes), 3).mean(0), 3) / 100
    return np.where(np.isnan(classes).all(0), math.nan, means)


def _gap(groups: np.ndarray) -> np.ndarray:
    """Best minus worst; NaN with fewer than two groups."""
    there = ~np.isnan(groups)
    gap = np.where(there, groups, -math.inf).max(0) - np.where(there, groups, math.inf).min(0)
    return np.where(there.sum(0) > 1, gap, math.nan)
