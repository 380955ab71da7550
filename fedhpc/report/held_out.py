"""Tables of environments that are held out together, such as all but one: generalisation from a single source.

No criterion needs such trials for another one, so DomainBed's report passes over them. Here each of the environments is
looked at as if the others that are held out did not exist; criteria that need no further trials then say what they say
about any dataset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fedhpc.report.results import Cell, Row, SweepRecords, Table, planned_environments, tables
from fedhpc.report.selection import Checkpoint, Criterion, TrialRecords, criteria


def held_out_tables(sweep: SweepRecords, criterion: Criterion, name: str) -> Iterator[Table]:
    """One table per dataset and set of environments that was held out for its own sake; none with DomainBed's rules.

    Args:
        sweep: the records.
        criterion: how models are chosen; one that needs other trials than the reported one has no such tables.
        name: its name.
    """
    for dataset in sweep.datasets() if not criterion.compat else ():
        count = len(sweep.labels(dataset))
        if count and len(criterion.needs(0, count)) == 1:
            for envs in held_out_sets(sweep, dataset):
                yield _table(sweep, criterion, name, dataset, envs)


def held_out_sets(sweep: SweepRecords, dataset: str) -> list[tuple[int, ...]]:
    """The sets of several environments whose trials no criterion of the sweep needs."""
    count = len(sweep.labels(dataset))
    needed = {
        frozenset(need)
        for criterion in criteria(sweep.criteria or None).values()
        for env in (planned_environments(sweep, criterion, dataset) if sweep.whole else range(count))
        for need in criterion.needs(env, count)
    }
    found = {frozenset(t.test_envs) for t in sweep.planned if t.dataset == dataset}
    found |= {frozenset(t.test_envs) for t in sweep.trials if t.dataset == dataset}
    return sorted(tuple(sorted(envs)) for envs in found - needed if len(envs) > 1)


def _table(sweep: SweepRecords, criterion: Criterion, name: str, dataset: str, envs: tuple[int, ...]) -> Table:
    labels = sweep.labels(dataset)
    cells: dict[str, list[Cell]] = {}
    for env in envs:
        kept = [e for e in range(len(labels)) if e == env or e not in envs]
        (table,) = tables(_with_one_held_out(sweep, dataset, envs, kept, env), criterion, name)
        for row in table.rows:
            cell = next(cell for cell in row.cells if kept[cell.test_env] == env)
            cells.setdefault(row.algorithm, []).append(_numbered(cell, kept))
    rows = tuple(Row(algorithm, tuple(of_algorithm)) for algorithm, of_algorithm in cells.items())
    return Table(dataset, name, tuple(labels[e] for e in envs), rows, envs)


def _with_one_held_out(
    sweep: SweepRecords, dataset: str, envs: tuple[int, ...], kept: Sequence[int], env: int
) -> SweepRecords:
    """The trials of a set as those of a dataset of fewer environments, of which they hold out one."""
    place = (kept.index(env),)
    trials = [t for t in sweep.trials if t.dataset == dataset and frozenset(t.test_envs) == frozenset(envs)]
    planned = [t for t in sweep.planned if t.dataset == dataset and frozenset(t.test_envs) == frozenset(envs)]
    return replace(
        sweep,
        trials=tuple(replace(t, test_envs=place, checkpoints=_checkpoints(t, kept)) for t in trials),
        planned=tuple(replace(t, test_envs=place) for t in planned),
        environments={dataset: tuple(sweep.labels(dataset)[e] for e in kept)},
    )


def _checkpoints(trial: TrialRecords, kept: Sequence[int]) -> tuple[Checkpoint, ...]:
    return tuple(
        Checkpoint(at.step, tuple(at.train[e] for e in kept), tuple(at.validation[e] for e in kept))
        for at in trial.checkpoints
    )


def _numbered(cell: Cell, kept: Sequence[int]) -> Cell:
    """A cell with the environments' numbers in the whole dataset."""
    choices = {
        seed: replace(choice, evidence=tuple(replace(e, environment=kept[e.environment]) for e in choice.evidence))
        for seed, choice in cell.choices.items()
    }
    return replace(cell, test_env=kept[cell.test_env], choices=choices)
