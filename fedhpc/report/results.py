"""Results of many trials: cells of tables, their averages, and what is missing in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedhpc.report.figures import NOTHING, Figure
from fedhpc.report.names import ALGORITHMS, DATASETS, environment_labels, in_order
from fedhpc.report.selection import Choice, Criterion, TrialRecords

TrialKey = tuple[str, str, frozenset[int], int, int]
"""A trial's place in a sweep: dataset, algorithm, held-out environments, hparams seed, trial seed."""


def trial_key(trial: TrialRecords | PlannedTrial) -> TrialKey:
    """The place of a trial in its sweep."""
    return trial.dataset, trial.algorithm, frozenset(trial.test_envs), trial.hparams_seed, trial.trial_seed


@dataclass(frozen=True)
class PlannedTrial:
    """A trial that a sweep consists of.

    Attributes:
        id: what its claims are named after; a part of the command that runs it.
        run: its folder, relative to the sweep's.
        dataset, algorithm, test_envs, hparams_seed, trial_seed: see `TrialRecords`.
        command: what runs this one, where the sweep has no command that runs them all.
    """

    id: str
    run: str
    dataset: str
    algorithm: str
    test_envs: tuple[int, ...]
    hparams_seed: int
    trial_seed: int
    command: str = ""

    @property
    def key(self) -> TrialKey:
        """Its place in the sweep."""
        return trial_key(self)


@dataclass(frozen=True)
class SweepRecords:
    """Everything a report on a sweep is made of.

    Attributes:
        source: where it was read, for messages.
        trials: what was recorded.
        planned: what the sweep consists of; empty where there is no plan (sweeps of the original).
        environments: names of the environments by dataset.
        criteria: criteria that the sweep was made for; empty: all.
        about: code version, profile and the like, for captions.
        command: how a list of trials is run; the ids follow it, separated by commas. Empty without a plan.
        problems: damaged records, one line each.
        failed: why planned trials that are not finished have raised: by id, the last line of the newest traceback.
        whole: whether the command without a list of trials would run what is planned and no more.
        has_defaults: whether hparams seed 0 stands for the defaults, as in sweeps; else candidates are only numbered.
    """

    source: str
    trials: tuple[TrialRecords, ...]
    planned: tuple[PlannedTrial, ...] = ()
    environments: Mapping[str, tuple[str, ...]] | None = None
    criteria: tuple[str, ...] = ()
    about: Mapping[str, str] | None = None
    command: str = ""
    problems: tuple[str, ...] = ()
    failed: Mapping[str, str] | None = None
    whole: bool = True
    has_defaults: bool = False

    @property
    def num_records(self) -> int:
        """Checkpoints of all trials."""
        return sum(len(t.checkpoints) for t in self.trials)

    @property
    def draws_repeat(self) -> bool:
        """Whether a draw has the same values in every repetition, as far as there are several."""
        values: dict[tuple[str, str, int], dict[int, str]] = {}
        for t in self.trials:
            if t.hparams_seed:
                draw = values.setdefault((t.dataset, t.algorithm, t.hparams_seed), {})
                draw[t.trial_seed] = repr(sorted(t.hparams.items()))
        several = [set(draw.values()) for draw in values.values() if len(draw) > 1]
        return bool(several) and all(len(found) == 1 for found in several)

    def labels(self, dataset: str) -> tuple[str, ...]:
        """Names of a dataset's environments."""
        given = (self.environments or {}).get(dataset)
        if given:
            return given
        sizes = [len(t.checkpoints[0].validation) for t in self.trials if t.dataset == dataset and t.checkpoints]
        return environment_labels(dataset, max(sizes, default=0))

    def datasets(self) -> list[str]:
        """Datasets in report order."""
        return in_order([*(t.dataset for t in self.planned), *(t.dataset for t in self.trials)], DATASETS)

    def algorithms(self) -> list[str]:
        """Algorithms in report order."""
        return in_order([*(t.algorithm for t in self.planned), *(t.algorithm for t in self.trials)], ALGORITHMS)


@dataclass(frozen=True)
class Cell:
    """One algorithm on one test environment.

    Attributes:
        test_env: the environment.
        figure: over the trial seeds that have a choice.
        choices: by trial seed.
        missing: planned trials that the criterion needs here and that are not finished.
        defaults: the same with hparams seed 0 as the only candidate: hyperparameters that do not differ between trials,
            so that its error has no part in theirs; without a value where no seed stands for them.
    """

    test_env: int
    figure: Figure
    choices: Mapping[int, Choice]
    missing: tuple[PlannedTrial, ...] = ()
    defaults: Figure = NOTHING


@dataclass(frozen=True)
class Row:
    """One algorithm on one dataset."""

    algorithm: str
    cells: tuple[Cell, ...]

    @property
    def mean(self) -> float | None:
        """Mean of the cells in percent, None if one of them has no value."""
        known = [c.figure.mean for c in self.cells if c.figure.mean is not None]
        return float(np.mean(known)) if known and len(known) == len(self.cells) else None

    @property
    def figure(self) -> Figure:
        """`mean` and the standard error over trials of their means; no error where cells have different trials."""
        seeds = {frozenset(cell.choices) for cell in self.cells}
        whole = _average(self, whole=True)
        return Figure(self.mean, *(whole.standard_error, whole.num_trials) if len(seeds) == 1 else (None, 0))

    @property
    def missing(self) -> tuple[PlannedTrial, ...]:
        """What is missing in the cells, each trial once."""
        return tuple({t.id: t for cell in self.cells for t in cell.missing}.values())


@dataclass(frozen=True)
class Table:
    """One dataset under one criterion.

    Attributes:
        dataset, criterion: their names.
        environments: names of the environments, one per cell of a row.
        rows: one per algorithm.
        held_out: the environments that its trials held out together; empty where each cell has trials of its own.
    """

    dataset: str
    criterion: str
    environments: tuple[str, ...]
    rows: tuple[Row, ...]
    held_out: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """The dataset, and what is special about the table."""
        return f"{self.dataset}, {' + '.join(self.environments)} held out together" if self.held_out else self.dataset


@dataclass(frozen=True)
class Averages:
    """All datasets under one criterion: a figure per algorithm and dataset, and the mean of a row's."""

    criterion: str
    datasets: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Figure, ...]], ...]

    def mean(self, figures: Sequence[Figure]) -> float | None:
        """Mean over the datasets in percent, None if one has no value."""
        known = [f.mean for f in figures if f.mean is not None]
        return float(np.mean(known)) if known and len(known) == len(figures) else None


def tables(sweep: SweepRecords, criterion: Criterion, name: str) -> list[Table]:
    """One table per dataset; an algorithm that has nothing to do with a dataset has no row there."""
    groups = _grouped(sweep.trials)
    finished = {trial_key(t) for t in sweep.trials if t.finished}
    planned: dict[tuple[str, str], list[PlannedTrial]] = {}
    for trial in sweep.planned:
        planned.setdefault((trial.dataset, trial.algorithm), []).append(trial)
    found = []
    for dataset in sweep.datasets():
        labels = sweep.labels(dataset)
        envs = range(len(labels)) if criterion.compat else planned_environments(sweep, criterion, dataset)
        rows = []
        for algorithm in sweep.algorithms():
            group = groups.get((dataset, algorithm), {})
            plan = planned.get((dataset, algorithm), [])
            open_trials = [t for t in plan if t.key not in finished]
            if group or plan:
                plain = _defaults(group) if sweep.has_defaults else {}
                cells = (_cell(criterion, env, len(labels), group, plain, open_trials) for env in envs)
                rows.append(Row(algorithm, tuple(cells)))
        if envs and rows:
            found.append(Table(dataset, name, tuple(labels[e] for e in envs), tuple(rows)))
    return found


def _grouped(trials: Iterable[TrialRecords]) -> dict[tuple[str, str], dict[int, list[TrialRecords]]]:
    """Trials by dataset and algorithm, then by trial seed, ascending."""
    groups: dict[tuple[str, str], dict[int, list[TrialRecords]]] = {}
    for trial in sorted(trials, key=lambda t: t.trial_seed):
        group = groups.setdefault((trial.dataset, trial.algorithm), {})
        group.setdefault(trial.trial_seed, []).append(trial)
    return groups


def planned_environments(sweep: SweepRecords, criterion: Criterion, dataset: str) -> list[int]:
    """The test environments whose trials, all that a criterion needs for them, are planned; without a plan all."""
    count = len(sweep.labels(dataset))
    sets = {frozenset(t.test_envs) for t in sweep.planned if t.dataset == dataset}
    return [e for e in range(count) if not sets or all(frozenset(n) in sets for n in criterion.needs(e, count))]


def _defaults(group: Mapping[int, Sequence[TrialRecords]]) -> dict[int, list[TrialRecords]]:
    return {seed: [t for t in trials if t.hparams_seed == 0] for seed, trials in group.items()}


def _cell(
    criterion: Criterion,
    test_env: int,
    num_environments: int,
    group: Mapping[int, Sequence[TrialRecords]],
    plain: Mapping[int, Sequence[TrialRecords]],
    open_trials: Sequence[PlannedTrial],
) -> Cell:
    choices = _choices(criterion, test_env, group)
    defaults = Figure.of([c.test for c in _choices(criterion, test_env, plain).values()])
    needs = {frozenset(need) for need in criterion.needs(test_env, num_environments)}
    missing = tuple(t for t in open_trials if frozenset(t.test_envs) in needs)
    return Cell(test_env, Figure.of([c.test for c in choices.values()]), choices, missing, defaults)


def _choices(criterion: Criterion, test_env: int, group: Mapping[int, Sequence[TrialRecords]]) -> dict[int, Choice]:
    """What a criterion chooses, by trial seed; seeds without a choice are absent."""
    chosen = {seed: criterion.choose(trials, test_env) for seed, trials in group.items()}
    return {seed: choice for seed, choice in chosen.items() if choice is not None}


def averages(found: Sequence[Table], name: str, whole: bool) -> Averages:
    """A figure per algorithm and dataset: the mean over test environments in each trial, then over the trials.

    Args:
        found: the tables of one criterion; those of environments that are held out together are passed over.
        name: the criterion.
        whole: leave out trials that lack a test environment; the original averages over whatever there is.
    """
    found = [table for table in found if not table.held_out]
    names = in_order((row.algorithm for table in found for row in table.rows), ALGORITHMS)
    rows = []
    for algorithm in names:
        by_dataset = {t.dataset: row for t in found for row in t.rows if row.algorithm == algorithm}
        figures = tuple(_average(by_dataset.get(t.dataset), whole) for t in found)
        rows.append((algorithm, figures))
    return Averages(name, tuple(t.dataset for t in found), tuple(rows))


def _average(row: Row | None, whole: bool) -> Figure:
    if row is None:
        return Figure.of([])
    seeds = sorted({seed for cell in row.cells for seed in cell.choices})
    means = []
    for seed in seeds:
        tests = [cell.choices[seed].test for cell in row.cells if seed in cell.choices]
        if not whole or len(tests) == len(row.cells):
            means.append(float(np.mean(tests)))
    return Figure.of(means)
