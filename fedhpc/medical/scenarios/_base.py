"""What all scenarios share: their numbers, and the way from a table to a timeline in the mode `fixed`."""

from __future__ import annotations

import random
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from fedhpc.config import Limits, Section
from fedhpc.data.ages import BINARY_EDGES, BRACKET_EDGES
from fedhpc.data.table import SampleTable
from fedhpc.data.timeline import Timeline
from fedhpc.data.units import UNIT, units_of
from fedhpc.errors import ConfigError
from fedhpc.medical.apportion import near_equal, whole_table
from fedhpc.medical.counting import fractions
from fedhpc.medical.groups import Groups, codes_of, groups_by_attributes, groups_by_label
from fedhpc.medical.kinds import SPARE, check_kind, drawn_kinds
from fedhpc.report.medical import NOT_KNOWN
from fedhpc.seeding import derive, generator

_SHARE = Limits(at_least=0, at_most=1)
_AT_LEAST_1 = Limits(at_least=1)


@dataclass(frozen=True, kw_only=True)
class Scenario(Section):
    """Demographic clients and temporal tasks; a pure function of a table and a seed.

    Units (patients, lesions) are never divided: all their samples belong to one client. Clients divide the training
    samples, and with `local_tests: split` the validation and test samples, too.
    """

    clients: Annotated[int, _AT_LEAST_1, "number of clients"] = 10
    tasks: Annotated[int, _AT_LEAST_1, "tasks in sequence; incremental kinds take it from the data"] = 4
    mode: Annotated[Literal["fixed", "compat"], "compat: counting rules of the original, with their flaws"] = "fixed"
    groups: Annotated[tuple[str, ...], "attributes whose combinations are the groups"] = ("age",)
    group_by: Annotated[Literal["attributes", "label"], "label: the classes are the groups"] = "attributes"
    edges: Annotated[tuple[float, ...], "where numbers (ages) are cut; empty: 60, in compat 59"] = ()
    task_edges: Annotated[tuple[float, ...], "the same for task_attribute; empty: 20, 40, 60, 80, or 19..79"] = ()
    missing: Annotated[Literal["drop", "group"], "samples that lack an attribute: leave out, or a group"] = "drop"
    unit: Annotated[str, "attribute that is never divided between clients; '': the sample itself"] = UNIT
    divided_units: Annotated[Literal["home", "refuse"], "units in several sites or parts: keep most, or stop"] = "home"
    mixed: Annotated[bool, "clients of several kinds; false: slices of equal size and mix"] = True
    balanced: Annotated[float, _SHARE, "share of clients with equal groups"] = 0.2
    spare: Annotated[float, _SHARE, "share of clients that get what the others left"] = 0.2
    kinds: Annotated[tuple[str, ...], "kind of every client; empty: drawn from the shares"] = ()
    leftovers: Annotated[Literal["deal", "unused"], "samples that no kind asks for"] = "deal"
    by_environment: Annotated[bool, "every client belongs to one environment (dataset, site)"] = False
    local_tests: Annotated[Literal["split", "shared"], "each test sample to one client, or each draws"] = "split"
    holdout: Annotated[Literal["disjoint", "test"], "units of its own, or all test samples again"] = "disjoint"
    holdout_fraction: Annotated[float, _SHARE, "share of the test units, where the dataset stores no hold-out"] = 0.5
    test_fraction: Annotated[float, _SHARE, "where the dataset stores no split"] = 0.2
    validation_fraction: Annotated[float, _SHARE, "where the dataset stores no split"] = 0.1
    min_client_size: Annotated[int, _AT_LEAST_1, "fewest training samples of a client"] = 1
    min_task_size: Annotated[int, Limits(at_least=0), "fewest of a client's task; 0: it may sit tasks out"] = 1

    copies: ClassVar[bool] = False
    """Whether every task holds all of the client's samples."""
    even_classes: ClassVar[bool] = False
    """Whether samples are divided class by class: evenly for validation and tests, within the groups for training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind in self.kinds:
            check_kind(kind)
        if self.kinds and len(self.kinds) != self.clients:
            raise ConfigError(f"kinds names {len(self.kinds)} clients, clients is {self.clients}")
        if self.balanced + self.spare > 1:
            raise ConfigError(f"balanced ({self.balanced:g}) and spare ({self.spare:g}) are more than 1 together")
        for name in ("edges", "task_edges"):
            edges = getattr(self, name)
            if list(edges) != sorted(set(edges)):
                raise ConfigError(f"{name} must ascend, got {list(edges)}")

    def timeline(self, table: SampleTable, seed: int) -> Timeline:
        """Divide a dataset; the same table, numbers and seed give the same timeline.

        Raises:
            ConfigError: it is not possible, with the numbers.
        """
        if self.mode == "compat":
            from fedhpc.medical.scenarios._compat import compat_timeline

            return compat_timeline(self, table, seed)
        from fedhpc.medical.scenarios._fixed import fixed_timeline

        return fixed_timeline(self, table, seed)

    def chosen(self, table: SampleTable, rows: np.ndarray, units: np.ndarray, seed: int) -> np.ndarray:
        """Samples of a part (training, validation, tests, hold-out) that the scenario is about; others are not used."""
        return rows

    def num_tasks(self, table: SampleTable, train: np.ndarray) -> int:
        """Number of tasks; `train` are the training samples of all clients."""
        return self.tasks

    def cells(self, table: SampleTable, groups: Groups, train: np.ndarray) -> tuple[np.ndarray, int]:
        """Cell of every sample (int64 [num_samples]) and number of cells; tasks are mixed from cells."""
        return np.maximum(groups.ids, 0), max(groups.num, 1)

    @abstractmethod
    def train_counts(self, sizes: np.ndarray, num_tasks: int, client: int, rng: np.random.Generator) -> np.ndarray:
        """Training samples of each cell in each task of a client: int64 [T, cells], of `sizes` [cells] there."""

    def test_counts(self, sizes: np.ndarray, train: np.ndarray) -> np.ndarray:
        """The same for its validation or test samples: near-equal tasks of the training tasks' mix.

        Args:
            sizes: [cells] samples there.
            train: [T, cells] what `train_counts` gave.
        """
        return whole_table(fractions(train), near_equal(int(sizes.sum()), len(train)), sizes)

    def test_mix(self, sizes: np.ndarray, train: np.ndarray) -> np.ndarray:
        """Shares of the cells in each validation or test task [T, cells] that draws from all samples there.

        Arguments as in `test_counts`.
        """
        return fractions(train)

    def suffix(self, client: int) -> str:
        """What is special about a client beside its kind."""
        return ""

    def client_kinds(self, seed: int, num_groups: int, clients: int, environment: int = 0) -> list[str]:
        """Kinds of the clients of one environment, given or drawn."""
        if not self.mixed:
            return ["equal"] * clients
        if self.kinds:
            for kind in self.kinds:
                check_kind(kind, num_groups)
            return list(self.kinds)
        ratios = {"balanced": self.balanced, SPARE: self.spare} if self.balanced else {SPARE: self.spare}
        return drawn_kinds(clients, ratios, random.Random(derive(seed, "scenario", "kinds", environment)))

    def find_groups(self, table: SampleTable, train: np.ndarray) -> Groups:
        """The demographic groups of a table."""
        if self.group_by == "label":
            return groups_by_label(table, train)
        edges = self.edges or BINARY_EDGES[self.mode]
        groups = groups_by_attributes(table, self.groups, train, edges, keep_empty=self.mode == "compat")
        if self.missing == "group" and (groups.ids < 0).any():
            ids = np.where(groups.ids < 0, groups.num, groups.ids)
            return Groups(ids, (*groups.values, (None,)), (*groups.names, NOT_KNOWN))
        return groups

    def task_codes(self, table: SampleTable, attribute: str) -> np.ndarray:
        """Codes of the attribute that orders the tasks, -1 where it is missing."""
        return codes_of(table, attribute, self.task_edges or BRACKET_EDGES[self.mode], "task_attribute")[0]

    def units(self, table: SampleTable) -> np.ndarray:
        """Unit of every sample: int64 [num_samples], distinct where a sample has none.

        Raises:
            ConfigError: the dataset does not have the attribute that was asked for, or it is a number.
        """
        units = units_of(table, self.unit, "scenario.unit")
        return np.arange(table.num_samples, dtype=np.int64) if units is None else units


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The random stream `scenario/<names>`."""
    return generator(seed, "scenario", *names)
