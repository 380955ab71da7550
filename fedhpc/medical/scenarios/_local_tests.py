"""Training tasks of a client, and validation and test tasks that look like them, in mode `fixed`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedhpc.data.table import SampleTable
from fedhpc.data.units import assign_units, of_units
from fedhpc.medical.apportion import near_equal, whole_table
from fedhpc.medical.counting import fractions
from fedhpc.medical.groups import Groups
from fedhpc.medical.scenarios._base import Scenario, stream

Tasks = tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class Dealt:
    """What was given to the clients for training.

    Attributes:
        scenario: the numbers.
        table: the samples.
        units: int64 [num_samples].
        groups: of the samples.
        cells: int64 [num_samples], what tasks are mixed from.
        train: per client its training samples.
        counts: per client [T, cells], samples of its training tasks.
        homes: per client its environment; 0 where environments do not matter.
        seed: of the run.
    """

    scenario: Scenario
    table: SampleTable
    units: np.ndarray
    groups: Groups
    cells: np.ndarray
    train: Sequence[np.ndarray]
    counts: Sequence[np.ndarray]
    homes: Sequence[int]
    seed: int

    def tests(self, pool: np.ndarray, part: str) -> tuple[tuple[Tasks, ...], int]:
        """Validation or test tasks of all clients, each from its own environment, and how many samples are left."""
        found: dict[int, Tasks] = {}
        for place in dict.fromkeys(self.homes):
            clients = [client for client, home in enumerate(self.homes) if home == place]
            there = pool[self.table.environment[pool] == place] if self.scenario.by_environment else pool
            if self.scenario.local_tests == "shared":
                found |= {c: self._drawn(there, c, part) for c in clients}
            else:
                found |= self._divided(there, clients, part, place)
        tasks = tuple(found[client] for client in range(len(self.homes)))
        used = [np.zeros(0, dtype=np.int64), *(rows for client in tasks for rows in client)]
        return tasks, len(pool) - len(np.unique(np.concatenate(used)))

    def _drawn(self, pool: np.ndarray, client: int, part: str) -> Tasks:
        """Each task draws its mix from the whole pool; only tasks and clients overlap, never a task with itself."""
        count, found = self.counts[client], []
        there = self.cells[pool]
        sizes = np.bincount(there[there >= 0], minlength=count.shape[1])
        for task, row in enumerate(self.scenario.test_mix(sizes, count)):
            wanted = whole_table(row[None, :], np.array([len(pool) // len(count)]), sizes)
            found.append(cut_tasks(pool, self.cells, wanted, self.seed, f"{part}-{task}", client)[0])
        return tuple(found)

    def _divided(self, pool: np.ndarray, clients: Sequence[int], part: str, place: int) -> dict[int, Tasks]:
        """Each sample of the pool to one of the clients."""
        scenario, cells = self.scenario, self.cells
        strata = self.table.labels if scenario.even_classes else self.groups.ids
        by = of_units(pool, strata, self.units)
        sizes = np.bincount(by[pool], minlength=int(strata.max(initial=0)) + 1)
        mix = np.array([self.groups.sizes(self.train[c]) for c in clients], dtype=np.float64)
        mix = np.ones((len(clients), len(sizes))) if scenario.even_classes else mix
        wanted = whole_table(fractions(mix), near_equal(len(pool), len(clients)), sizes).astype(np.float64)
        names = ("clients", place) if scenario.by_environment else ("clients",)
        given, _ = assign_units(pool, by, self.units, wanted, stream(self.seed, part, *names))
        tasks = {}
        for client, rows in zip(clients, given, strict=True):
            count = self.counts[client]
            if scenario.copies:
                tasks[client] = (rows,) * len(count)
                continue
            there = np.bincount(cells[rows][cells[rows] >= 0], minlength=count.shape[1])
            tasks[client] = cut_tasks(rows, cells, scenario.test_counts(there, count), self.seed, part, client)
        return tasks


def cut_tasks(rows: np.ndarray, cells: np.ndarray, counts: np.ndarray, seed: int, part: str, client: int) -> Tasks:
    """Take `counts` [T, cells] of the samples, cell by cell without replacement, and shuffle each task."""
    taken: list[list[np.ndarray]] = [[] for _ in counts]
    for cell in range(counts.shape[1]):
        own = stream(seed, part, client, "cell", cell).permutation(np.sort(rows[cells[rows] == cell]))
        ends = np.cumsum(counts[:, cell])
        for task, (start, end) in enumerate(zip(ends - counts[:, cell], ends, strict=True)):
            taken[task].append(own[start:end])
    return tuple(
        stream(seed, part, client, "task", task).permutation(np.concatenate(pieces).astype(np.int64))
        for task, pieces in enumerate(taken)
    )
