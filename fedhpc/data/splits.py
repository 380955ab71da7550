"""Which samples of each environment train, and which validate, in a domain-generalization trial; numpy only.

The split depends on nothing but the trial seed, the environment's index and its size, so that all algorithms,
hyperparameters and test environments of a trial see the same one, and it equals the original's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhpc.data.schema import SPLITS
from fedhpc.data.table import SampleTable
from fedhpc.data.units import of_units
from fedhpc.errors import ConfigError
from fedhpc.seeding import text_hash


@dataclass(frozen=True, eq=False)
class EnvironmentSplit:
    """The samples of one environment, int64 indices.

    Attributes:
        inside: a training environment trains on these; a test environment is tested on them.
        outside: a training environment validates on these; of a test environment they are the oracle's.
        unlabeled: of a test environment, for domain adaptation.
    """

    inside: np.ndarray
    outside: np.ndarray
    unlabeled: np.ndarray

    def of(self, indices: np.ndarray) -> EnvironmentSplit:
        """Return the split with `indices` in place of positions."""
        return EnvironmentSplit(indices[self.inside], indices[self.outside], indices[self.unlabeled])

    def expanded(self, unit: np.ndarray) -> EnvironmentSplit:
        """Return the split of samples whose units have these positions: int64 [num_samples]."""
        parts = (np.flatnonzero(np.isin(unit, part)) for part in (self.inside, self.outside, self.unlabeled))
        return EnvironmentSplit(*parts)


def split_environment(
    num_samples: int,
    trial_seed: int,
    environment: int,
    holdout_fraction: float = 0.2,
    unlabeled_fraction: float = 0.0,
    labels: np.ndarray | None = None,
) -> EnvironmentSplit:
    """Split the positions 0 ... n-1 of one environment.

    Args:
        num_samples: n.
        trial_seed: of the repetition.
        environment: its index in the dataset.
        holdout_fraction: share of `outside`, rounded down.
        unlabeled_fraction: share of the rest that becomes `unlabeled`, rounded down.
        labels: [n] classes; with them every class is split in the same proportion (the original never does).

    Raises:
        ConfigError: a fraction that is not in [0, 1).
    """
    for name, value in (("holdout_fraction", holdout_fraction), ("uda_holdout_fraction", unlabeled_fraction)):
        if not 0 <= value < 1:
            raise ConfigError(f"sweep.{name} must be at least 0 and less than 1, got {value}")
    seed = text_hash(trial_seed, environment)
    positions = list(range(num_samples))
    outside, inside = _cut(positions, seed, holdout_fraction, labels)
    unlabeled: list[int] = []
    if unlabeled_fraction > 0:
        unlabeled, inside = _cut(inside, seed, unlabeled_fraction, labels)
    parts = (np.array(part, dtype=np.int64) for part in (inside, outside, unlabeled))
    return EnvironmentSplit(*parts)


def split_table(
    table: SampleTable,
    trial_seed: int,
    test_environments: tuple[int, ...] = (),
    holdout_fraction: float = 0.2,
    unlabeled_fraction: float = 0.0,
    stratified: bool = False,
    stored: bool = False,
    units: np.ndarray | None = None,
) -> list[EnvironmentSplit]:
    """Split every environment of a dataset into global sample indices; only test environments give `unlabeled`.

    Args:
        table: of the dataset.
        trial_seed: see `split_environment`, as the fractions.
        test_environments: indices of the environments that are held out.
        holdout_fraction: share of `outside`.
        unlabeled_fraction: share of the rest of test environments that becomes `unlabeled`.
        stratified: split every class in the same proportion.
        stored: draw nothing; take the parts that the dataset itself marks (see `stored_split`).
        units: int64 [num_samples]; with them whole units (patients) are drawn, each as one sample.

    Raises:
        ConfigError: a test environment that does not exist, or an environment without samples or marks.
    """
    unknown = [e for e in test_environments if not 0 <= e < table.num_environments]
    if unknown:
        raise ConfigError(
            f"sweep.test_envs: {unknown[0]} is no environment, there are 0 to {table.num_environments - 1}"
        )
    splits = []
    for environment in range(table.num_environments):
        indices = np.flatnonzero(table.environment == environment)
        if not len(indices):
            raise ConfigError(f"environment {table.environment_names[environment]} has no samples; prepare it again")
        if stored:
            splits.append(stored_split(table.split[indices], table.environment_names[environment]).of(indices))
            continue
        labels, unit = table.labels[indices], None
        if units is not None:
            unit, labels = _numbered(units[indices], labels)
        split = split_environment(
            len(labels),
            trial_seed,
            environment,
            holdout_fraction,
            unlabeled_fraction if environment in test_environments else 0.0,
            labels if stratified else None,
        )
        splits.append((split if unit is None else split.expanded(unit)).of(indices))
    return splits


def _numbered(units: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number of each sample's unit in the order of their first samples, and the label of most samples of each unit."""
    everything = np.arange(len(units))
    _, first, unit = np.unique(units, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return np.argsort(order)[unit], of_units(everything, labels, units)[first[order]]


def stored_split(codes: np.ndarray, name: str) -> EnvironmentSplit:
    """The split that a dataset brings along: `inside` is marked train, `outside` validation, or test without that.

    Args:
        codes: [n] of `fedhpc.data.schema.SPLITS`.
        name: of the environment, for messages.

    Raises:
        ConfigError: one of the two parts is empty.
    """
    train, validation, test = (SPLITS.index(part) for part in ("train", "validation", "test"))
    inside = np.flatnonzero(codes == train)
    outside = np.flatnonzero(codes == validation)
    outside = outside if len(outside) else np.flatnonzero(codes == test)
    if not len(inside) or not len(outside):
        raise ConfigError(
            f"sweep.stored_split: the dataset marks {len(inside)} samples of environment {name} as train and "
            f"{len(outside)} as validation or test; leave the key away to draw the split"
        )
    return EnvironmentSplit(inside, outside, np.empty(0, np.int64))


def _cut(positions: list[int], seed: int, fraction: float, labels: np.ndarray | None) -> tuple[list[int], list[int]]:
    """Shuffle and return (the first part, the rest)."""
    order = list(positions)
    np.random.RandomState(seed).shuffle(order)
    if labels is None:
        count = int(len(order) * fraction)
        return order[:count], order[count:]
    first, rest, due = [], [], 0.0
    for label in np.unique(labels[order]):  # ascending; rounding errors carry over to the next class
        own = [i for i in order if labels[i] == label]
        due += len(own) * fraction
        count = min(int(due + 0.5), len(own))
        due -= count
        first += own[:count]
        rest += own[count:]
    return (first, rest) if rest else (first[:-1], first[-1:])  # as without labels something is left
