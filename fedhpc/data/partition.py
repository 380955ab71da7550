"""Which client owns which samples: a small index over an immutable dataset.

numpy only: partitions are made before torch is imported. Every random choice comes from a stream named after
what it decides (the class, the environment), so that adding a class does not reshuffle the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from fedhpc.data.schema import SPLITS, UNASSIGNED
from fedhpc.data.table import SampleTable
from fedhpc.data.units import UNIT, owned_by_several
from fedhpc.errors import ConfigError
from fedhpc.seeding import generator

TRAIN, VALIDATION, TEST, HOLDOUT = range(len(SPLITS))

_NAMED_CLIENTS = 8  # how many clients an error lists before it only counts


class Partitioner(Protocol):
    """What every module of `fedhpc.data.partitions` offers as `PARTITION`: its numbers and one pure function."""

    def split(self, table: SampleTable, seed: int) -> Partition:
        """Divide the samples among clients; the same table, numbers and seed give the same partition."""
        ...


@dataclass(frozen=True, eq=False)
class Partition:
    """The samples of every client.

    Attributes:
        train: per client, sorted int64 indices into the dataset.
        test: the same for the client's own test samples.
        unused: number of samples that no client holds.
        notes: what a reader of the run should know (samples left out and why, repaired draws). They stay on the
            rank that made the partition.
    """

    train: tuple[np.ndarray, ...]
    test: tuple[np.ndarray, ...]
    unused: int
    notes: tuple[str, ...] = ()

    @property
    def num_clients(self) -> int:
        """Number of clients."""
        return len(self.train)

    def counts(self, table: SampleTable) -> list[dict[str, object]]:
        """Return per client `client`, `num_train`, `num_test` and the counts per class of both parts."""
        return [
            {
                "client": client,
                "num_train": len(train),
                "num_test": len(test),
                "train_per_class": np.bincount(table.labels[train], minlength=table.num_classes).tolist(),
                "test_per_class": np.bincount(table.labels[test], minlength=table.num_classes).tolist(),
            }
            for client, (train, test) in enumerate(zip(self.train, self.test, strict=True))
        ]

    def check(self) -> Partition:
        """Return self after checking that no sample is used twice and that every client can train and be tested.

        Raises:
            ConfigError: naming the samples or the clients, with their numbers.
        """
        _refuse_doubles(np.concatenate([*self.train, *self.test]) if self.train else np.zeros(0, np.int64))
        poor = [c for c in range(self.num_clients) if not (len(self.train[c]) and len(self.test[c]))]
        if poor or not self.num_clients:
            shown = [f"{c} ({len(self.train[c])} train, {len(self.test[c])} test)" for c in poor[:_NAMED_CLIENTS]]
            more = f" and {len(poor) - _NAMED_CLIENTS} more" if len(poor) > _NAMED_CLIENTS else ""
            raise ConfigError(
                f"partition: {len(poor)} of {self.num_clients} clients lack train or test samples: client "
                f"{', '.join(shown)}{more}; ask for fewer clients or another partition.test_fraction"
            )
        return self

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return flat int64 arrays that can travel as buffers; the inverse of `from_arrays`."""
        arrays = {"unused": np.array([self.unused], dtype=np.int64)}
        for name, parts in (("train", self.train), ("test", self.test)):
            arrays[name] = np.concatenate([*parts, np.zeros(0, np.int64)]).astype(np.int64)
            arrays[f"{name}_sizes"] = np.array([len(p) for p in parts], dtype=np.int64)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Partition:
        """Rebuild a partition from what `to_arrays` gave."""

        def parts(name: str) -> tuple[np.ndarray, ...]:
            sizes = arrays[f"{name}_sizes"]
            return tuple(np.split(arrays[name], np.cumsum(sizes)[:-1])) if len(sizes) else ()

        return cls(parts("train"), parts("test"), int(arrays["unused"][0]))


def assemble(
    table: SampleTable, train: Sequence[np.ndarray], test: Sequence[np.ndarray], *, notes: Sequence[str] = ()
) -> Partition:
    """Sort each client's samples, count the unused ones and check the result (see `Partition.check`)."""

    def tidy(parts: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        return tuple(np.sort(np.asarray(p, dtype=np.int64)) for p in parts)

    used = sum(map(len, train)) + sum(map(len, test))
    told = (*notes, *_shared_units(table, train, test))
    return Partition(tidy(train), tidy(test), table.num_samples - used, told).check()


def _shared_units(table: SampleTable, train: Sequence[np.ndarray], test: Sequence[np.ndarray]) -> list[str]:
    """A note where units (patients) are divided between clients, or between training and tests."""
    if UNIT not in table.attributes:
        return []
    units = table.attributes[UNIT]
    several = owned_by_several(list(zip(train, test, strict=True)), units)
    both = owned_by_several([train, test], units)
    if not several and not both:
        return []
    return [
        f"{several} units (patients) have samples with more than one client, {both} both for training and for tests: "
        "this partition divides samples; partition.kind by_environment and medical scenarios keep units whole"
    ]


def train_test(
    table: SampleTable, test_fraction: float, seed: int, validation: Literal["train", "unused"] = "train"
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted indices of the train and of the test samples.

    A stored split that has both parts is kept; validation samples count as train samples unless asked otherwise,
    holdout samples are in neither. Samples without a stored split (and a whole dataset of which only one part is
    stored) are divided by the stream `partition/split`, stratified by label and, inside a label, by environment:
    each label gives `round(n * test_fraction)` test samples, at least one and at most n - 1 where it has two.
    """
    split = table.split
    trains = np.isin(split, [TRAIN, VALIDATION] if validation == "train" else [TRAIN])
    tests = split == TEST
    loose = split == UNASSIGNED
    if not (trains.any() and tests.any()):
        loose = loose | trains | tests
        trains = tests = np.zeros(len(split), dtype=bool)
    cut = _stratified(table, np.flatnonzero(loose), test_fraction, seed)
    is_test = np.zeros(len(split), dtype=bool)
    is_test[cut] = True
    return np.flatnonzero(trains | (loose & ~is_test)), np.flatnonzero(tests | is_test)


def shuffled(indices: np.ndarray, seed: int, *names: str | int) -> np.ndarray:
    """Return the indices in the order of the stream `partition/<names>`."""
    return generator(seed, "partition", *names).permutation(indices)


def cut(indices: np.ndarray, parts: int) -> list[np.ndarray]:
    """Cut into consecutive pieces whose sizes differ by one at most; the larger ones are spread over the order."""
    return np.split(indices, [len(indices) * p // parts for p in range(1, parts)])


def deal(indices: np.ndarray, table: SampleTable, parts: int, seed: int, *names: str | int) -> list[np.ndarray]:
    """Deal samples to near-equal parts with near-equal class counts, shuffled by the stream `partition/<names>`."""
    mixed = shuffled(indices, seed, *names)
    by_label = mixed[np.argsort(table.labels[mixed], kind="stable")]
    return [by_label[p::parts] for p in range(parts)]


def check_range(field: str, value: float, low: float, high: float = float("inf"), *, open_ends: bool = False) -> None:
    """Raise ConfigError unless `low <= value <= high` (or `low < value < high`); the message names the field."""
    inside = low < value < high if open_ends else low <= value <= high
    if not inside:
        limits = [f"{'more than' if open_ends else 'at least'} {low:g}"]
        limits += [f"{'less than' if open_ends else 'at most'} {high:g}"] if high != float("inf") else []
        what = " and ".join(limits)
        raise ConfigError(f"partition.{field} must be {what}, got {value}")


def _stratified(table: SampleTable, indices: np.ndarray, test_fraction: float, seed: int) -> np.ndarray:
    """Pick the test samples among `indices`: evenly spaced over each label's samples, sorted by environment."""
    mixed = shuffled(indices, seed, "split")
    mixed = mixed[np.lexsort((table.environment[mixed], table.labels[mixed]))]
    picked = [np.zeros(0, dtype=np.int64)]
    starts = np.flatnonzero(np.diff(table.labels[mixed], prepend=-1))
    for group in np.split(mixed, starts[1:]):
        size = len(group)
        count = min(max(round(size * test_fraction), 1), size - 1) if test_fraction > 0 else 0
        if count > 0:
            picked.append(group[(2 * np.arange(count) + 1) * size // (2 * count)])
    return np.concatenate(picked)


def _refuse_doubles(used: np.ndarray) -> None:
    values, times = np.unique(used, return_counts=True)
    if len(values) < len(used):
        first = values[times > 1][:_NAMED_CLIENTS].tolist()
        raise ConfigError(f"partition: {int((times > 1).sum())} samples are used more than once, first {first}")
