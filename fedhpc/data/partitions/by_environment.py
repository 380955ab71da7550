"""Clients are the dataset's environments (domains, sites), each cut further, or several of them, if asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhpc.data.partition import HOLDOUT, Partition, assemble, check_range, deal, train_test
from fedhpc.data.table import SampleTable
from fedhpc.data.units import UNIT, units_of
from fedhpc.data.whole_units import deal_units, train_test_units
from fedhpc.errors import ConfigError


@dataclass(frozen=True)
class ByEnvironment:
    """Client e * clients_per_environment + j holds the j-th piece of environment e.

    With several environments per client it holds pieces of the environments e, e + 1, ..., in a ring. An environment
    of which every sample is held out has no clients, and the numbers close up. Pieces of one environment have
    near-equal sizes and near-equal class counts.

    Units (patients) are never divided: one with samples in several environments, or for training and for tests, is
    kept where most of its samples are, and its others are left out.

    Attributes:
        clients_per_environment: clients that begin with each environment.
        environments_per_client: how many environments each client holds pieces of.
        test_fraction: share of the samples (or units) kept for testing where the dataset stores no split.
        unit: attribute that is never divided, where the dataset has it; empty: samples are divided.
    """

    clients_per_environment: int = 1
    environments_per_client: int = 1
    test_fraction: float = 0.2
    unit: str = UNIT

    def __post_init__(self) -> None:
        check_range("clients_per_environment", self.clients_per_environment, 1)
        check_range("environments_per_client", self.environments_per_client, 1)
        check_range("test_fraction", self.test_fraction, 0, 1, open_ends=True)

    def split(self, table: SampleTable, seed: int) -> Partition:
        """Return the partition; ConfigError if an environment has too few train or test samples."""
        held = [bool((table.split[table.environment == e] == HOLDOUT).all()) for e in range(table.num_environments)]
        present = [e for e in range(table.num_environments) if not (held[e] and (table.environment == e).any())]
        if self.environments_per_client > len(present):
            raise ConfigError(
                f"partition.environments_per_client is {self.environments_per_client}, but there are {len(present)} "
                "environments to train on"
            )
        units = units_of(table, self.unit, "partition.unit")
        notes: list[str] = []
        if units is None:
            divided = train_test(table, self.test_fraction, seed)
        else:
            divided, notes = train_test_units(table, self.test_fraction, seed, units)
        parts = []
        for name, samples in zip(("train", "test"), divided, strict=True):
            pieces = [self._pieces(table, samples, e, name, seed, units) for e in present]
            parts.append(self._clients(pieces))
        return assemble(table, *parts, notes=notes)

    def _pieces(
        self, table: SampleTable, samples: np.ndarray, environment: int, name: str, seed: int, units: np.ndarray | None
    ) -> list[np.ndarray]:
        """Cut one environment's train or test samples into as many pieces as there are clients that hold it."""
        own = samples[table.environment[samples] == environment]
        number = self.clients_per_environment * self.environments_per_client
        if len(own) < number:
            raise ConfigError(
                f"partition: environment '{table.environment_names[environment]}' has {len(own)} {name} "
                f"samples for {number} clients (partition.clients_per_environment)"
            )
        if units is not None:
            return deal_units(own, table, number, seed, units, "by_environment", name, environment)
        return deal(own, table, number, seed, "by_environment", name, environment)

    def _clients(self, pieces: list[list[np.ndarray]]) -> list[np.ndarray]:
        """Hand each client its pieces: of the environment it begins with the first, of the next the second, ..."""
        each, several = self.clients_per_environment, range(self.environments_per_client)
        return [
            np.concatenate([pieces[(e + n) % len(pieces)][n * each + j] for n in several])
            for e in range(len(pieces))
            for j in range(each)
        ]


PARTITION = ByEnvironment
