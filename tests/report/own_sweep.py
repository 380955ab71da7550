"""A sweep's folder as `fedhpc sweep` leaves it, written without training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from fedhpc.report.trial_files import plan_text
from fedhpc.runs.records import Record, RecordWriter
from fedhpc.sweep.trials import TrialSpec

Envs = tuple[int, ...]


def specs(
    dataset: str = "pacs", count: int = 4, algorithms: Sequence[str] = ("erm",), pairs: bool = True, **more: Any
) -> list[TrialSpec]:
    """Two candidates and two trials of each algorithm on all single environments and, if asked for, pairs."""
    sets: list[Envs] = [s for size in (1, 2)[: 1 + pairs] for s in combinations(range(count), size)]
    values = {"steps": 5001, "checkpoint_freq": 300, **more}
    return [
        TrialSpec(dataset, algorithm, envs, hparams_seed, trial_seed, **values)
        for algorithm in algorithms
        for envs in sets
        for hparams_seed in range(2)
        for trial_seed in range(2)
    ]


def write_sweep(
    folder: Path,
    trials: Sequence[TrialSpec],
    labels: Mapping[str, Sequence[str]],
    criteria: Sequence[str] = ("training_domain_validation", "leave_one_domain_out", "oracle"),
    finished: Sequence[TrialSpec] | None = None,
    validation: float | None = 0.5,
    diverged: Sequence[TrialSpec] = (),
) -> Path:
    """The plan, and the records of what is finished (without a list, all); accuracy grows with both seeds."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.yaml").write_text("sweep: {}\n", encoding="utf-8")
    about = {"profile": "paper"}
    (folder / "plan.json").write_text(plan_text([t.planned() for t in trials], labels, criteria, about))
    for spec in trials if finished is None else finished:
        place = folder / spec.folder
        place.mkdir(parents=True)
        accuracy = 0.5 + 0.1 * spec.hparams_seed + 0.01 * spec.trial_seed
        with RecordWriter(place / "metrics.jsonl") as writer:
            for step in (0, spec.steps - 1):
                writer.write(Record("loss", 1.0, "", step, 0.0))
                for env in range(len(labels[spec.dataset])):
                    roles = ("test", "oracle") if env in spec.test_envs else ("train", "validation")
                    writer.write(Record(f"{roles[0]}_accuracy", accuracy, "fraction", step, 0.0, environment=env))
                    value = None if validation is None else accuracy
                    writer.write(Record(f"{roles[1]}_accuracy", value, "fraction", step, 0.0, environment=env))
        hparams = {"lr": 0.1 + spec.hparams_seed * (1 + (0 if spec.setup.get("fixed_draws") else spec.trial_seed))}
        done = {"spec": spec.full_dict(), "hparams": hparams, "num_environments": len(labels[spec.dataset])}
        (place / "done").write_text(json.dumps({**done, "diverged": spec in diverged}), encoding="utf-8")
    return folder


def fail(folder: Path, spec: TrialSpec, attempt: int, error: str) -> None:
    """Mark an attempt as one that raised."""
    (folder / "queue").mkdir(exist_ok=True)
    trace = json.dumps({"traceback": f"Traceback\n  somewhere\n{error}\n"})
    (folder / "queue" / f"{spec.id}.{attempt}.failed").write_text(trace, encoding="utf-8")
