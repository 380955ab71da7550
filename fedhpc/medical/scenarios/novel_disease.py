"""A disease that appears over time, fast in some clients and slowly in others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedhpc.config import Limits
from fedhpc.data.table import SampleTable
from fedhpc.errors import ConfigError
from fedhpc.medical.apportion import near_equal, whole_table
from fedhpc.medical.counting import fractions
from fedhpc.medical.groups import Groups
from fedhpc.medical.scenarios._base import Scenario, stream

_RAPID, _SLOW = (0.0, 0.10, 0.50, 0.90), (0.0, 0.0, 0.10, 0.50)
_PREVALENCE = Limits(at_least=0, below=1)
_NOT_NEGATIVE = Limits(at_least=0)


@dataclass(frozen=True, kw_only=True)
class NovelDisease(Scenario):
    """Each task of a client has a given share of the new class; validation and test tasks have it throughout.

    The tasks are as large as the client's samples allow, all of one size; old samples that remain go to the tasks
    without the disease, and what is left of the disease is reported. The first `rapid` clients are rapid,
    unless `speeds` names each client's.
    """

    clients: Annotated[int, Limits(at_least=1)] = 5
    mixed: bool = False
    rapid: Annotated[int, Limits(at_least=0), "number of rapid clients; the others are slow"] = 3
    speeds: Annotated[tuple[str, ...], "`rapid` or `slow` for every client; empty: the first ones are rapid"] = ()
    novel_class: Annotated[int, Limits(at_least=-1), "index of the new class; -1: the last one"] = -1
    rapid_prevalence: Annotated[tuple[float, ...], _PREVALENCE, "per task; empty: 0, .1, .5, .9 or between"] = ()
    slow_prevalence: Annotated[tuple[float, ...], _PREVALENCE, "per task; empty: 0, 0, .1, .5 or between"] = ()
    others_per_new: Annotated[float, _NOT_NEGATIVE, "other samples per one of the new class, in each part; 0: all"] = 0

    even_classes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rapid > self.clients:
            raise ConfigError(f"rapid is {self.rapid}, there are {self.clients} clients")
        if self.speeds and (len(self.speeds) != self.clients or set(self.speeds) - {"rapid", "slow"}):
            raise ConfigError(
                f"speeds must be rapid or slow for each of {self.clients} clients, got {list(self.speeds)}"
            )
        for name in ("rapid_prevalence", "slow_prevalence"):
            given = getattr(self, name)
            if given and len(given) != self.tasks:
                raise ConfigError(f"{name} has {len(given)} numbers, tasks is {self.tasks}")

    def chosen(self, table: SampleTable, rows: np.ndarray, units: np.ndarray, seed: int) -> np.ndarray:
        """All units with the new class, and others in random order until there are `others_per_new` times as many."""
        if not self.others_per_new:
            return rows
        _, unit, sizes = np.unique(units[rows], return_inverse=True, return_counts=True)
        new = table.labels[rows] == self.novel(table.num_classes)
        always = np.bincount(unit[new], minlength=len(sizes)) > 0
        order = stream(seed, "others").permutation(len(sizes))
        order = order[~always[order]]
        room = self.others_per_new * new.sum() - (sizes[always].sum() - new.sum())
        taken = order[np.cumsum(sizes[order]) - sizes[order] < room]
        return rows[always[unit] | np.isin(unit, taken)]

    def novel(self, num_classes: int) -> int:
        """Index of the new class.

        Raises:
            ConfigError: there is no such class.
        """
        if self.novel_class >= num_classes:
            raise ConfigError(f"scenario.novel_class is {self.novel_class}, classes are 0 to {num_classes - 1}")
        return num_classes - 1 if self.novel_class < 0 else self.novel_class

    def speed(self, client: int) -> str:
        """`rapid` or `slow`."""
        if self.speeds:
            return self.speeds[client]
        return "rapid" if client < self.rapid else "slow"

    def prevalence(self, client: int) -> np.ndarray:
        """Wanted share of the new class in each task of a client: float64 [T]."""
        rapid = self.speed(client) == "rapid"
        given = self.rapid_prevalence if rapid else self.slow_prevalence
        if given:
            return np.array(given)
        known = _RAPID if rapid else _SLOW
        return np.interp(np.linspace(0, 1, self.tasks), np.linspace(0, 1, len(known)), known)

    def suffix(self, client: int) -> str:
        """The speed."""
        return f"/{self.speed(client)}"

    def cells(self, table: SampleTable, groups: Groups, train: np.ndarray) -> tuple[np.ndarray, int]:
        """The classes."""
        return table.labels.astype(np.int64), table.num_classes

    def train_counts(self, sizes: np.ndarray, num_tasks: int, client: int, rng: np.random.Generator) -> np.ndarray:
        """Solve the task sizes from the wanted prevalence, and spread the old classes over them in proportion."""
        novel, wanted = self.novel(len(sizes)), self.prevalence(client)
        old = np.delete(np.arange(len(sizes)), novel)
        num_old = int(sizes[old].sum())
        limits = [np.inf if not total else there / total for there, total in
                  ((sizes[novel], wanted.sum()), (num_old, (1 - wanted).sum()))]  # fmt: skip
        size = min(limits)
        old_sizes = np.floor((1 - wanted) * size + 1e-9).astype(np.int64)
        free = wanted == 0
        if free.any():
            old_sizes[free] += near_equal(num_old - int(old_sizes.sum()), int(free.sum()))
        counts = np.zeros((num_tasks, len(sizes)), dtype=np.int64)
        counts[:, novel] = np.floor(wanted * size + 1e-9).astype(np.int64)
        counts[:, old] = whole_table(np.tile(sizes[old], (num_tasks, 1)), old_sizes, sizes[old])
        return counts

    def test_counts(self, sizes: np.ndarray, train: np.ndarray) -> np.ndarray:
        """Every class in every task."""
        return whole_table(np.ones((len(train), len(sizes))), near_equal(int(sizes.sum()), len(train)), sizes)

    def test_mix(self, sizes: np.ndarray, train: np.ndarray) -> np.ndarray:
        """The same mix in every task."""
        return fractions(np.tile(sizes, (len(train), 1)))


SCENARIO = NovelDisease
