"""Clients are the dataset's environments (domains, sites), each cut further if asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhpc.data.partition import Partition, assemble, check_range, deal, train_test
from fedhpc.data.table import SampleTable
from fedhpc.errors import ConfigError


@dataclass(frozen=True)
class ByEnvironment:
    """Client e * clients_per_environment + j holds the j-th piece of environment e.

    Pieces of one environment have near-equal sizes and near-equal class counts.

    Attributes:
        clients_per_environment: pieces each environment is cut into.
        test_fraction: share of the samples kept for testing where the dataset stores no split.
    """

    clients_per_environment: int = 1
    test_fraction: float = 0.2

    def __post_init__(self) -> None:
        check_range("clients_per_environment", self.clients_per_environment, 1)
        check_range("test_fraction", self.test_fraction, 0, 1, open_ends=True)

    def split(self, table: SampleTable, seed: int) -> Partition:
        """Return the partition; ConfigError if an environment has too few train or test samples."""
        parts: list[list[np.ndarray]] = []
        for name, samples in zip(("train", "test"), train_test(table, self.test_fraction, seed), strict=True):
            clients: list[np.ndarray] = []
            for environment in range(table.num_environments):
                own = samples[table.environment[samples] == environment]
                if len(own) < self.clients_per_environment:
                    raise ConfigError(
                        f"partition: environment '{table.environment_names[environment]}' has {len(own)} {name} "
                        f"samples for {self.clients_per_environment} clients (partition.clients_per_environment)"
                    )
                clients += deal(own, table, self.clients_per_environment, seed, "by_environment", name, environment)
            parts.append(clients)
        return assemble(table, *parts)


PARTITION = ByEnvironment
