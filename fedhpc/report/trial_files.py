"""The folder of a sweep: its plan, and the records of its trials.

`plan.json` lists the trials; `trials/<dataset>/<algorithm>/<name>/` holds one trial's `metrics.jsonl` and, once it is
finished, `done` with everything that was asked of it. Only finished trials count.

Records of a trial are those of `runs.records`; `round` counts steps: the 0-based index of the update just made. The
accuracy of an environment carries its role in its name, because the same split means different things in a training
and in a test environment:

======================= =============================== =====================
what                    environment, part               DomainBed's key
======================= =============================== =====================
`train_accuracy`        training, larger part           `env{i}_in_acc`
`validation_accuracy`   training, smaller part          `env{i}_out_acc`
`test_accuracy`         held out, larger part           `env{i}_in_acc`
`oracle_accuracy`       held out, smaller part          `env{i}_out_acc`
======================= =============================== =====================
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedhpc.errors import ConfigError, FedhpcError
from fedhpc.report.results import PlannedTrial, SweepRecords
from fedhpc.report.selection import Checkpoint, TrialRecords
from fedhpc.runs.records import Record, read_records

FORMAT = 1
PLAN, CONFIG, TRIALS, METRICS, DONE, QUEUE = "plan.json", "sweep.yaml", "trials", "metrics.jsonl", "done", "queue"
TRAIN, VALIDATION, TEST, ORACLE = "train_accuracy", "validation_accuracy", "test_accuracy", "oracle_accuracy"
LARGER, SMALLER = (TRAIN, TEST), (VALIDATION, ORACLE)
WHOLE = "whole"
"""Key of plan.json: whether all trials of the configuration beside it are planned; without it they are."""
SETTINGS = "settings"
"""Key of plan.json's `about`: what the trials' settings differ from the defaults in."""
_AXES = ("id", "run", "dataset", "algorithm", "test_envs", "hparams_seed", "trial_seed")


def is_sweep(directory: Path) -> bool:
    """Whether a directory holds one of our sweeps."""
    return (directory / PLAN).is_file()


def plan_text(
    trials: Sequence[PlannedTrial],
    environments: Mapping[str, Sequence[str]],
    criteria: Sequence[str],
    about: Mapping[str, str],
    more: Mapping[str, Any] | None = None,
) -> str:
    """The content of plan.json; one line a trial. `more` are further keys, which readers may pass over."""
    head = {"format": FORMAT, "criteria": list(criteria), "about": dict(about), **(more or {})}
    head["environments"] = {name: list(labels) for name, labels in environments.items()}
    rows = ",\n".join(json.dumps([getattr(t, axis) for axis in _AXES]) for t in trials)
    return f'{json.dumps(head)[:-1]}, "axes": {json.dumps(_AXES)}, "trials": [\n{rows}\n]}}\n'


def read_plan(directory: Path) -> SweepRecords:
    """The plan of a sweep, without its records.

    Raises:
        ConfigError: there is no plan.
        FedhpcError: it cannot be read.
    """
    path = directory / PLAN
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != FORMAT:
            raise FedhpcError(f"{path}: has format {found['format']}, this version reads {FORMAT}")
        planned = tuple(
            PlannedTrial(**{**dict(zip(_AXES, row, strict=True)), "test_envs": tuple(row[4])})
            for row in found["trials"]
        )
        return SweepRecords(
            str(directory),
            (),
            planned,
            {name: tuple(labels) for name, labels in found["environments"].items()},
            tuple(found["criteria"]),
            found["about"],
            f"fedhpc sweep {shlex.quote(str(directory / CONFIG))} --out {shlex.quote(str(directory))} --only",
            has_defaults=True,
            whole=bool(found.get(WHOLE, True)),
        )
    except FileNotFoundError:
        raise ConfigError(f"{directory}: holds no sweep; `fedhpc sweep CONFIG --out {directory}` begins one") from None
    except OSError as error:
        raise FedhpcError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, IndexError) as error:
        if isinstance(error, FedhpcError):
            raise
        raise FedhpcError(f"{path}: is no plan of a sweep ({error}); run the sweep's command again") from None


def read_sweep(directory: Path) -> SweepRecords:
    """The plan of a sweep and the records of its finished trials; a damaged trial is named and counts as missing."""
    plan = read_plan(directory)
    problems: list[str] = []
    trials = []
    for done in _finished(directory, plan.planned):
        try:
            trials.append(read_trial(done.parent, directory))
        except FedhpcError as error:
            problems.append(str(error))
    finished = {t.run for t in trials}
    failed = _failures(directory, {t.id for t in plan.planned if t.run not in finished})
    return replace(plan, trials=tuple(trials), problems=tuple(problems), failed=failed)


def _failures(directory: Path, ids: Set[str]) -> dict[str, str]:
    """Why trials have raised: the last line of the newest traceback, by id; the queue's names are `<id>.<n>.failed`."""
    newest: dict[str, int] = {}
    for path in (directory / QUEUE).glob("*.failed"):
        trial, number = path.name.split(".")[:2]
        if trial in ids and number.isdecimal():
            newest[trial] = max(newest.get(trial, 0), int(number))
    return {trial: _last_line(directory / QUEUE / f"{trial}.{n}.failed") for trial, n in sorted(newest.items())}


def _last_line(path: Path) -> str:
    try:
        trace = str(json.loads(path.read_text(encoding="utf-8"))["traceback"])
        return trace.strip().splitlines()[-1]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return "no traceback is known"


def _finished(directory: Path, planned: Iterable[PlannedTrial]) -> Iterator[Path]:
    """The `done` files of planned trials; one listing per dataset and algorithm instead of a look at every trial."""
    groups: dict[Path, set[str]] = {}
    for trial in planned:
        folder = directory / trial.run
        groups.setdefault(folder.parent, set()).add(folder.name)
    for parent in sorted(groups):
        present = {p.name for p in parent.iterdir()} if parent.is_dir() else set()
        for name in sorted(groups[parent] & present):
            done = parent / name / DONE
            if done.is_file():
                yield done


def read_trial(folder: Path, sweep: Path) -> TrialRecords:
    """One finished trial.

    Raises:
        FedhpcError: its files are damaged; names the file.
    """
    done = read_done(folder)
    spec = done["spec"]
    try:
        trial = TrialRecords(
            run=folder.relative_to(sweep).as_posix(),
            dataset=spec["dataset"],
            algorithm=spec["algorithm"],
            test_envs=tuple(spec["test_envs"]),
            hparams_seed=spec["hparams_seed"],
            trial_seed=spec["trial_seed"],
            checkpoints=checkpoints(records := list(read_records(folder / METRICS)), int(done["num_environments"])),
            hparams=done["hparams"],
            diverged=bool(done.get("diverged", False)),
        )
        ends = {r.environment for r in records if r.round == spec["steps"] - 1 and r.what in SMALLER}
        if ends != set(range(int(done["num_environments"]))):
            raise FedhpcError(f"{folder / METRICS}: ends before the trial did")
        return trial
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, FedhpcError):
            raise
        raise FedhpcError(
            f"{folder / DONE}: lacks what a report needs ({error}); remove it to repeat the trial"
        ) from None


def read_done(folder: Path) -> dict[str, Any]:
    """The `done` file of a trial.

    Raises:
        FedhpcError: it is missing or damaged.
    """
    path = folder / DONE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FedhpcError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise FedhpcError(f"{path}: is not JSON; remove it to repeat the trial") from None
    if not isinstance(found, dict) or not isinstance(found.get("spec"), dict):
        raise FedhpcError(f"{path}: is no record of a trial; remove it to repeat the trial")
    return found


def checkpoints(records: Iterable[Record], num_environments: int) -> tuple[Checkpoint, ...]:
    """Put the accuracies of a trial's records together, in the order of the steps' first records."""
    steps: dict[int, tuple[list[float], list[float]]] = {}
    for record in records:
        larger = record.what in LARGER
        if record.environment is None or not (larger or record.what in SMALLER):
            continue
        pair = steps.setdefault(record.round, ([math.nan] * num_environments, [math.nan] * num_environments))
        pair[0 if larger else 1][record.environment] = math.nan if record.value is None else record.value
    return tuple(Checkpoint(step, tuple(a), tuple(b)) for step, (a, b) in steps.items())
