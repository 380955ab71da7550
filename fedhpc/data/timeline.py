"""Which client owns which samples in which temporal task, and the hold-out: a small index over an immutable dataset.

numpy only, like `fedhpc.data.partition`; a timeline of one task is a partition with validation samples and a hold-out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedhpc.data.partition import Partition
from fedhpc.data.table import SampleTable
from fedhpc.data.units import owned_by_several
from fedhpc.errors import ConfigError

Tasks = tuple[tuple[np.ndarray, ...], ...]
"""[client][task] -> int64 indices into the dataset."""

PARTS = ("train", "validation", "test")
_NAMED = 8


@dataclass(frozen=True, eq=False)
class Timeline:
    """The samples of every client in every task.

    Attributes:
        train: [client][task] indices, in the order in which a sequential pass reads them.
        validation: the same for the samples that averaging methods are steered by.
        test: the same for the client's own test samples.
        holdout: samples of the common hold-out, which no client trains on.
        kinds: kind of each client (see `fedhpc.medical.kinds`), with its speed where there is one.
        group: int64 [num_samples] demographic group of each sample, -1 where it has none.
        group_names: names of the groups, by number.
        unused: reason -> number of samples that are in no client and not in the hold-out.
        notes: what a reader of the run should know.
    """

    train: Tasks
    validation: Tasks
    test: Tasks
    holdout: np.ndarray
    kinds: tuple[str, ...]
    group: np.ndarray
    group_names: tuple[str, ...]
    unused: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def num_clients(self) -> int:
        """Number of clients."""
        return len(self.train)

    @property
    def num_tasks(self) -> int:
        """Number of tasks; a client that lacks one has an empty array there."""
        return max((len(tasks) for tasks in self.train), default=0)

    def named(self, values: Mapping[str, Sequence[str]]) -> Timeline:
        """The same with categories called by their names: `sex 0` becomes `sex M`; attribute -> its categories."""
        texts = {f"{attribute} {code}": f"{attribute} {text}" for attribute in values for code, text in
                 enumerate(values[attribute])}  # fmt: skip
        names = tuple(", ".join(texts.get(part, part) for part in name.split(", ")) for name in self.group_names)
        return replace(self, group_names=names)

    def present(self, task: int) -> tuple[int, ...]:
        """Clients that have training samples in a task: its cohort."""
        return tuple(c for c in range(self.num_clients) if len(self.train[c][task]))

    def partition(self, task: int) -> Partition:
        """The training and test samples of one task; the rest counts as unused."""
        train = tuple(np.sort(tasks[task]) for tasks in self.train)
        test = tuple(np.sort(tasks[task]) for tasks in self.test)
        return Partition(train, test, len(self.group) - sum(map(len, train)) - sum(map(len, test)), self.notes)

    def counts(self, table: SampleTable) -> list[dict[str, Any]]:
        """One row per client, task and part: `client`, `kind`, `task`, `part`, `num` and `counted`'s."""
        return [
            {
                "client": client,
                "kind": self.kinds[client],
                "task": task,
                "part": part,
                "num": len(rows),
                **self.counted(rows, table),
            }
            for client in range(self.num_clients)
            for task in range(self.num_tasks)
            for part in PARTS
            for rows in (getattr(self, part)[client][task],)
        ]

    def counted(self, rows: np.ndarray, table: SampleTable) -> dict[str, list[Any]]:
        """Counts of some samples: `per_group`, `per_class` and, by group, `per_group_and_class`."""
        shape = (len(self.group_names) + 1, table.num_classes)
        cells = (self.group[rows] + 1) * shape[1] + table.labels[rows]
        counts = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)  # samples without a group first
        return {
            "per_group": counts[1:].sum(1).tolist(),
            "per_class": counts.sum(0).tolist(),
            "per_group_and_class": counts[1:].tolist(),
        }

    def duplicates(self) -> dict[str, int]:
        """Per part, how many times a sample is used beyond its first use; and of training samples in another part."""
        found = {}
        for part in PARTS:
            rows = _flat(getattr(self, part))
            found[part] = len(rows) - len(np.unique(rows))
        others = np.concatenate([_flat(self.validation), _flat(self.test), self.holdout])
        found["train in another part"] = len(np.intersect1d(_flat(self.train), others))
        found["test in hold-out"] = len(np.intersect1d(_flat(self.test), self.holdout))
        return found

    def shared_units(self, units: np.ndarray, parts: Sequence[str] = ("train",)) -> int:
        """How many units (patients, lesions) have samples of some parts in more than one client.

        Args:
            units: int [num_samples] unit of each sample; negative is "its own unit".
            parts: of `PARTS`.
        """
        held = [[rows for part in parts for rows in getattr(self, part)[c]] for c in range(self.num_clients)]
        return owned_by_several(held, units)

    def check_sizes(self, min_client: int, min_task: int) -> Timeline:
        """Return self if every client and every task of a client has enough training and test samples.

        Raises:
            ConfigError: naming the clients and tasks with their numbers.
        """
        small = [
            f"client {c} ({self.kinds[c]}) has {n} training samples"
            for c in range(self.num_clients)
            if (n := sum(map(len, self.train[c]))) < min_client
        ]
        _refuse(small, f"scenario.min_client_size is {min_client}")
        for part in ("train", "test"):
            tasks = getattr(self, part)
            least = min_task if part == "train" else min(min_task, 1)
            poor = [
                f"client {c} ({self.kinds[c]}) task {t + 1} has {len(tasks[c][t])} {part} samples"
                for c in range(self.num_clients)
                for t in range(self.num_tasks)
                if len(tasks[c][t]) < least
            ]
            _refuse(poor, f"scenario.min_task_size is {min_task}")
        return self

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Flat int64 arrays that can travel as buffers; names and notes stay behind. Inverse of `from_arrays`."""
        arrays = {"holdout": self.holdout.astype(np.int64), "group": self.group.astype(np.int64)}
        for part in PARTS:
            tasks: Tasks = getattr(self, part)
            arrays[part] = _flat(tasks)
            arrays[f"{part}_sizes"] = np.array([[len(t) for t in client] for client in tasks], dtype=np.int64).ravel()
        return arrays

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, np.ndarray], kinds: Sequence[str], group_names: Sequence[str]
    ) -> Timeline:
        """Rebuild a timeline from what `to_arrays` gave."""

        def tasks(part: str) -> Tasks:
            sizes = arrays[f"{part}_sizes"]
            cuts = np.split(arrays[part], np.cumsum(sizes)[:-1]) if len(sizes) else []
            per_client = len(cuts) // max(len(kinds), 1)
            return tuple(tuple(cuts[c * per_client : (c + 1) * per_client]) for c in range(len(kinds)))

        parts = [tasks(part) for part in PARTS]
        return cls(parts[0], parts[1], parts[2], arrays["holdout"], tuple(kinds), arrays["group"], tuple(group_names))


def _flat(tasks: Tasks) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *(rows for client in tasks for rows in client)])


def _refuse(problems: Sequence[str], rule: str) -> None:
    if problems:
        more = f" and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        raise ConfigError(
            f"scenario: {'; '.join(problems[:_NAMED])}{more} ({rule}); ask for fewer clients or tasks, or another split"
        )
