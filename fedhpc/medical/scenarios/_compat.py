"""From a table to a timeline by the original's counting rules, with its flaws, for comparison with published numbers.

Samples are divided one by one (patients end up in several clients), the reserve is drawn anew for every client (some
samples twice), validation and test tasks are drawn from one pool, which is the hold-out as well. Only the counts are
the original's; which samples are taken follows this package's own streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedhpc.data.partition import TEST, TRAIN, VALIDATION
from fedhpc.data.table import SampleTable
from fedhpc.data.timeline import Timeline
from fedhpc.errors import ConfigError
from fedhpc.medical import counting
from fedhpc.medical.apportion import halving
from fedhpc.medical.groups import Groups
from fedhpc.medical.kinds import SPARE, group_counts
from fedhpc.medical.scenarios._base import Scenario, stream
from fedhpc.medical.scenarios.class_incremental import ClassIncremental
from fedhpc.medical.scenarios.group_incremental import GroupIncremental
from fedhpc.medical.scenarios.group_ratios import GroupRatios
from fedhpc.medical.scenarios.localized import Localized
from fedhpc.medical.scenarios.novel_disease import NovelDisease

Rows = np.ndarray
Weights = Callable[[int, int], np.ndarray]
"""(client, tasks) -> the localized split's percentages."""


def compat_timeline(scenario: Scenario, table: SampleTable, seed: int, weights: Weights | None = None) -> Timeline:
    """See `Scenario.timeline`; `weights` replaces the drawn percentages of the localized split (for tests).

    Raises:
        ConfigError: where the original crashes, with the reason.
    """
    pools = {name: np.flatnonzero(table.split == code) for name, code in
             (("train", TRAIN), ("validation", VALIDATION), ("test", TEST))}  # fmt: skip
    if not len(pools["train"]) or not len(pools["test"]):
        raise ConfigError("scenario.mode: compat needs a dataset with a stored train and test split")
    if scenario.by_environment:
        raise ConfigError("scenario.by_environment needs mode: fixed; the original's client counts can be zero (B7)")
    own = np.arange(table.num_samples)
    whole, pools = pools, {name: scenario.chosen(table, rows, own, seed) for name, rows in pools.items()}
    groups = scenario.find_groups(table, pools["train"])
    pools = {name: stream(seed, "compat", name).permutation(rows) for name, rows in pools.items()}
    kinds = scenario.client_kinds(seed, groups.num, scenario.clients)
    clients = split_clients(scenario, groups, pools["train"], kinds, seed)
    num_tasks = scenario.num_tasks(table, pools["train"])
    splitter = TaskSplitter(scenario, table, groups, seed, num_tasks, weights)
    cut = [splitter.client(client, rows, pools) for client, rows in enumerate(clients)]
    unused = {f"{name}: beyond the scenario": len(rows) - len(pools[name]) for name, rows in whole.items()}
    unused = {**unused, **_unused(pools, clients, cut)}
    return Timeline(
        tuple(parts[0] for parts in cut),
        tuple(parts[1] for parts in cut),
        tuple(parts[2] for parts in cut),
        np.sort(pools["test"]),
        tuple(kind + scenario.suffix(client) for client, kind in enumerate(kinds)),
        groups.ids,
        groups.names,
        {reason: count for reason, count in unused.items() if count},
        ("mode compat: counting rules of the original, with its flaws",),
    )


def _unused(
    pools: Mapping[str, Rows], clients: Sequence[Rows], cut: Sequence[tuple[tuple[Rows, ...], ...]]
) -> dict[str, int]:
    """Reason -> samples that are in no task; all tests are in the hold-out."""
    drawn = np.unique(np.concatenate(clients))
    in_tasks = [np.unique(np.concatenate([rows for parts in cut for rows in parts[part]])) for part in (0, 1)]
    return {
        "train: never drawn": len(pools["train"]) - len(drawn),
        "train: drawn, but in no task": len(drawn) - len(in_tasks[0]),
        "validation: in no task": len(pools["validation"]) - len(in_tasks[1]),
    }


def split_clients(scenario: Scenario, groups: Groups, rows: Rows, kinds: Sequence[str], seed: int) -> list[Rows]:
    """Training samples of every client, in their final order."""
    if not scenario.mixed:
        return np.split(rows, np.cumsum(halving(len(rows), len(kinds)))[:-1])
    pools = [rows[groups.ids[rows] == g] for g in range(groups.num)]
    reserve = np.zeros(0, dtype=np.int64)
    if scenario.group_by == "attributes":
        pools, reserve = _set_aside(pools, seed)
    nominal = sum(map(len, pools)) / len(kinds)
    num_spare = sum(kind == SPARE for kind in kinds)
    num_others = len(kinds) - num_spare
    to_spare = int((1 - 0.3) * len(reserve))
    # The spare clients' part is divided by the number of the *other* clients: the original's defect B2.
    extra = {True: to_spare // num_others, False: int((1 - 0.7) * len(reserve)) // num_others}
    clients, left_for_spare = [], None
    for client, kind in enumerate(kinds):
        rng = stream(seed, "compat", "client", client)
        if kind == SPARE:
            left_for_spare = left_for_spare or [len(pool) // num_spare for pool in pools]
            counts = left_for_spare
        else:
            counts = group_counts(kind, [len(pool) for pool in pools], nominal)
        pieces = []
        for g, count in enumerate(counts):
            mixed = rng.permutation(pools[g])
            pieces.append(mixed[:count])
            pools[g] = mixed[count:]
        pieces.append(rng.permutation(reserve)[: extra[kind == SPARE]])
        clients.append(rng.permutation(np.concatenate(pieces)))
    return clients


def _set_aside(pools: list[Rows], seed: int) -> tuple[list[Rows], Rows]:
    """Cut the larger of two groups to the smaller one; what was cut off is the reserve."""
    if len(pools) != 2:
        raise ConfigError(f"scenario.mode: compat knows mixed clients of two groups only, there are {len(pools)}")
    sizes = [len(pool) for pool in pools]
    if sizes[0] == sizes[1]:
        raise ConfigError(f"scenario.mode: the original crashes where both groups are equal ({sizes[0]}); use fixed")
    large = int(np.argmax(sizes))
    mixed = stream(seed, "compat", "reserve").permutation(pools[large])
    pools[large] = mixed[: min(sizes)]
    return pools, mixed[min(sizes) :]


@dataclass(frozen=True)
class TaskSplitter:
    """Divides one client after the other into tasks."""

    scenario: Scenario
    table: SampleTable
    groups: Groups
    seed: int
    num_tasks: int
    weights: Weights | None

    def client(self, client: int, rows: Rows, pools: dict[str, Rows]) -> tuple[tuple[Rows, ...], ...]:
        """Training, validation and test tasks of one client."""
        rng = stream(self.seed, "compat", "tasks", client)
        tests = (pools["validation"], pools["test"])
        scenario = self.scenario
        if scenario.copies:
            return tuple((part,) * self.num_tasks for part in (rows, *tests))
        if isinstance(scenario, Localized):
            return self._localized(client, rows, tests, rng)
        if isinstance(scenario, GroupRatios):
            return self._ratios(scenario, rows, tests, rng)
        if isinstance(scenario, NovelDisease):
            return (self._novel(scenario, client, rows, rng), *(self._cut(part) for part in tests))
        if isinstance(scenario, (GroupIncremental, ClassIncremental)):
            cells, num = self._values(scenario, client, rows, pools["train"])
            return tuple(tuple(part[cells[part] == task] for task in range(num)) for part in (rows, *tests))
        return tuple(self._cut(part) for part in (rows, *tests))

    def _cut(self, rows: Rows) -> tuple[Rows, ...]:
        return tuple(np.array_split(rows, self.num_tasks))

    def _localized(
        self, client: int, rows: Rows, tests: Sequence[Rows], rng: np.random.Generator
    ) -> tuple[tuple[Rows, ...], ...]:
        sizes = self.groups.sizes(rows)
        if np.count_nonzero(sizes) == 1:
            return tuple(self._cut(part) for part in (rows, *tests))
        if len(sizes) != 2:
            raise ConfigError(f"scenario.mode: compat's localized split needs two groups, there are {len(sizes)}")
        drawn = self.weights or (lambda _, num_tasks: counting.normalised_weights(rng, num_tasks))
        counts = counting.localized_counts(sizes.tolist(), drawn(client, self.num_tasks).tolist())
        shares = counting.fractions(counts)
        train = self._take(rows, self.groups.ids, counts, rng)
        return (train, *(self._drawn(part, shares, rng) for part in tests))

    def _ratios(
        self, scenario: GroupRatios, rows: Rows, tests: Sequence[Rows], rng: np.random.Generator
    ) -> tuple[tuple[Rows, ...], ...]:
        scenario.check_width(self.groups.num)
        sizes = self.groups.sizes(rows)
        counts, extra = counting.ratio_counts(sizes.tolist(), scenario.shares)
        pools = [rng.permutation(rows[self.groups.ids[rows] == g]) for g in range(self.groups.num)]
        core = np.concatenate([pool[: sizes.min()] for pool in pools])
        reserve = rng.permutation(np.concatenate([pool[sizes.min() :] for pool in pools]))
        tasks = self._take(core, self.groups.ids, counts, rng)
        train = tuple(
            rng.permutation(np.concatenate([task, reserve[t * extra : (t + 1) * extra]]))
            for t, task in enumerate(tasks)
        )
        shares = [list(row) for row in scenario.shares]
        if len(reserve):  # only groups that are present are listed, so shares can move to another group: defect B36
            found = [self.groups.sizes(task) for task in train]
            shares = [(row[row > 0] / row.sum()).tolist() for row in found]
        return (train, *(self._drawn(part, shares, rng) for part in tests))

    def _novel(self, scenario: NovelDisease, client: int, rows: Rows, rng: np.random.Generator) -> tuple[Rows, ...]:
        if self.num_tasks != 4:
            raise ConfigError(f"scenario.mode: compat's novel disease has four tasks, tasks is {self.num_tasks}")
        labels = self.table.labels
        novel = scenario.novel(self.table.num_classes)
        sizes = np.bincount(labels[rows], minlength=self.table.num_classes).tolist()
        speed = scenario.speed(client)
        return self._take(rows, labels, counting.novel_counts(sizes, speed, novel), rng)

    def _values(
        self, scenario: GroupIncremental | ClassIncremental, client: int, rows: Rows, everyone: Rows
    ) -> tuple[np.ndarray, int]:
        """Task of every sample, and how many tasks a client has.

        Classes are those of all training samples, so a client may have empty tasks; values of an attribute are counted
        client by client.
        """
        if isinstance(scenario, ClassIncremental):
            return scenario.cells(self.table, self.groups, everyone)
        (cells, num), (_, wanted) = (self._merged(scenario, rows), self._merged(scenario, everyone))
        if num == 1 or num != wanted:
            raise ConfigError(
                f"scenario.mode: client {client} has {num} values of {scenario.task_attribute}, the training samples "
                f"{wanted}, and there the original crashes; use mode fixed, or fewer clients"
            )
        return cells, num

    def _merged(self, scenario: GroupIncremental, train: Rows) -> tuple[np.ndarray, int]:
        """Values numbered among those in `train`; of ages the original merges the two youngest brackets."""
        cells, num = scenario.cells(self.table, self.groups, train)
        if scenario.task_attribute == "age":
            codes = scenario.task_codes(self.table, "age")[train]
            if np.unique(codes[codes >= 0]).tolist()[:2] == [0, 1]:
                cells, num = np.maximum(cells - 1, np.minimum(cells, 0)), num - 1
        return cells, num

    def _take(self, rows: Rows, cells: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> tuple[Rows, ...]:
        """`counts` [T, cells] samples without replacement, each task shuffled."""
        pools = [rng.permutation(rows[cells[rows] == cell]) for cell in range(counts.shape[1])]
        ends = np.cumsum(counts, 0)
        return tuple(
            rng.permutation(
                np.concatenate([pool[end - n : end] for pool, end, n in zip(pools, ends[t], counts[t], strict=True)])
            )
            for t in range(len(counts))
        )

    def _drawn(
        self, pool: Rows, shares: Sequence[Sequence[float]] | np.ndarray, rng: np.random.Generator
    ) -> tuple[Rows, ...]:
        """Tasks that are each drawn from the whole pool, so that they overlap."""
        sizes = self.groups.sizes(pool)
        found = []
        for row in shares:
            counts = counting.drawn_counts(sizes.tolist(), [list(row)], len(pool) // self.num_tasks)
            found.append(self._take(pool, self.groups.ids, counts, rng)[0])
        return tuple(found)
