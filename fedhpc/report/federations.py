"""Federated runs that hold environments out, as a sweep: the criteria of model selection on rounds and algorithms.

A run is a trial, a round a checkpoint. What a table calls an algorithm is the federated rule with the local objective,
`fedavg+erm`; runs of one such pair that differ in anything else but seed and held-out environments are its candidates,
like hyperparameter draws. A last row, `best of all`, lets the criterion choose among the algorithms as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fedhpc
from fedhpc.config import other_result, read_yaml
from fedhpc.errors import FedhpcError
from fedhpc.report.collect import CONFIG, DONE, METRICS, find_runs
from fedhpc.report.names import ALGORITHMS
from fedhpc.report.results import PlannedTrial, SweepRecords, Table, averages
from fedhpc.report.selection import TrialRecords
from fedhpc.report.studies import absent_runs, resume_command
from fedhpc.report.sweeps import SweepResults, results
from fedhpc.report.trial_files import checkpoints
from fedhpc.runs.records import read_records

BEST_OF_ALL = "best of all"
PARTITION = "partition.json"


@dataclass(frozen=True)
class _Run:
    """A run directory, or a run that a study has planned: its configuration as dotted keys, and what it recorded.

    `digest` tells its dataset from others of the name; None in runs that do not say.
    `command` runs one that has not begun; empty in those that have.
    """

    path: Path
    name: str
    keys: Mapping[str, Any]
    finished: bool
    digest: str | None = None
    command: str = ""

    @property
    def algorithm(self) -> str:
        return f"{self.keys.get('algorithm.name', 'fedavg')}+{self.keys.get('local.objective', 'erm')}"

    @property
    def candidate(self) -> str:
        """All that tells candidates apart, as text."""
        chosen = {k: self.keys[k] for k in other_result(self.keys) if k != "generalize.test_envs"}
        return json.dumps(chosen, sort_keys=True)


def holds_out(directory: Path) -> bool:
    """Whether a run directory belongs to a federation that holds environments out."""
    try:
        tree = read_yaml(str(directory / CONFIG))
    except FedhpcError:
        return False
    held = tree.get("generalize")
    return bool(isinstance(held, Mapping) and held.get("test_envs"))


def read_federations(directories: Sequence[Path]) -> SweepRecords | None:
    """The runs that hold environments out, among and below some directories; None if there are none.

    Raises:
        ConfigError: a directory holds no run.
    """
    paths = [path for path in find_runs(directories) if holds_out(path)]
    if not paths:
        return None
    runs = _told_apart(sorted([*map(_read, paths), *_absent(directories)], key=_place))
    numbers = _candidates(runs)
    problems: list[str] = []
    trials: list[TrialRecords] = []
    environments: dict[str, tuple[str, ...]] = {}
    for run in runs:
        if run.command:
            continue
        try:
            names = _environments(run.path)
            environments[str(run.keys["data.dataset"])] = names
            trials.append(_trial(run, numbers[run.algorithm, run.candidate], len(names)))
        except FedhpcError as error:
            problems.append(str(error))
    planned = tuple(_planned(run, numbers[run.algorithm, run.candidate]) for run in runs)
    source = ", ".join(map(str, directories))
    about = {"made with": fedhpc.__version__, "of": "federated runs; a step is a round"}
    return SweepRecords(source, tuple(trials), planned, environments, (), about, "", tuple(problems))


def federated_results(sweep: SweepRecords, names: Sequence[str] | None = None, compat: bool = False) -> SweepResults:
    """Tables under each criterion, with the row that chooses among the algorithms where there are several."""
    found = results(sweep, names, compat)
    if len(sweep.algorithms()) < 2:
        return found
    places: dict[tuple[str, int], int] = {}
    for run in sweep.planned:
        places.setdefault((run.algorithm, run.hparams_seed), len(places))

    def pooled(trial: Any) -> Any:
        number = places[trial.algorithm, trial.hparams_seed]
        changed = replace(trial, algorithm=BEST_OF_ALL, hparams_seed=number)
        if isinstance(trial, TrialRecords):
            changed = replace(changed, hparams={"algorithm": trial.algorithm, **trial.hparams})
        return changed

    together = replace(sweep, trials=tuple(map(pooled, sweep.trials)), planned=tuple(map(pooled, sweep.planned)))
    best = results(together, names, compat)
    tables = {name: tuple(map(_with_rows, found.tables[name], best.tables[name])) for name in found.tables}
    means = {}
    for name in tables:
        mean = averages(tables[name], name, whole=not compat)
        means[name] = replace(mean, rows=tuple(sorted(mean.rows, key=lambda row: row[0] == BEST_OF_ALL)))
    return replace(found, tables=tables, averages=means)


def _with_rows(table: Table, other: Table) -> Table:
    return replace(table, rows=(*table.rows, *other.rows))


def _read(path: Path) -> _Run:
    keys = dict(_flat(read_yaml(str(path / CONFIG))))
    return _Run(path, str(path), keys, (path / DONE).exists(), _digest(path))


def _absent(directories: Sequence[Path]) -> Iterator[_Run]:
    """What studies have planned, with environments held out, and not begun."""
    for run in absent_runs(directories):
        keys = dict(_flat(run.run.config))
        if keys.get("generalize.test_envs"):
            yield _Run(run.place, str(run.place), keys, False, command=run.command)


def _digest(run: Path) -> str | None:
    try:
        found = json.loads((run / PARTITION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return str(found["data"]) if isinstance(found, Mapping) and found.get("data") else None


def _told_apart(runs: Sequence[_Run]) -> list[_Run]:
    """The runs, with the digest as one more key where there are different data of one name; paths say nothing."""
    known: dict[Any, set[str]] = {}
    for run in runs:
        if run.digest:
            known.setdefault(run.keys.get("data.dataset"), set()).add(run.digest)
    several = {name for name, digests in known.items() if len(digests) > 1}
    return [
        replace(run, keys={**run.keys, "data.digest": run.digest}) if run.keys.get("data.dataset") in several else run
        for run in runs
    ]


def _place(run: _Run) -> tuple[str, int, str]:
    """Sort key: federated rule, then the objectives in the order of the study."""
    objective = run.algorithm.partition("+")[2]
    known = list(ALGORITHMS)
    place = known.index(objective) if objective in known else len(known)
    return run.algorithm.partition("+")[0], place, run.name


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _candidates(runs: Sequence[_Run]) -> dict[tuple[str, str], int]:
    """A number for each candidate of each algorithm, from 0."""
    numbers: dict[tuple[str, str], int] = {}
    for key in sorted({(run.algorithm, run.candidate) for run in runs}):
        numbers[key] = sum(algorithm == key[0] for algorithm, _ in numbers)
    return numbers


def _environments(run: Path) -> tuple[str, ...]:
    path = run / PARTITION
    try:
        return tuple(json.loads(path.read_text(encoding="utf-8"))["environments"])
    except (OSError, ValueError, KeyError, TypeError):
        raise FedhpcError(f"{path}: does not say which environments there are") from None


def _trial(run: _Run, number: int, num_environments: int) -> TrialRecords:
    return TrialRecords(
        run.name,
        str(run.keys["data.dataset"]),
        run.algorithm,
        tuple(run.keys["generalize.test_envs"]),
        number,
        int(run.keys["seed"]),
        checkpoints(read_records(run.path / METRICS), num_environments),
        json.loads(run.candidate),
        run.finished,
    )


def _planned(run: _Run, number: int) -> PlannedTrial:
    return PlannedTrial(
        run.path.name,
        run.name,
        str(run.keys["data.dataset"]),
        run.algorithm,
        tuple(run.keys["generalize.test_envs"]),
        number,
        int(run.keys["seed"]),
        run.command or resume_command(run.path),
    )
