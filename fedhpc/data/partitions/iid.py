"""Every client draws from the same pool: sizes differ by one sample at most."""

from __future__ import annotations

from dataclasses import dataclass

from fedhpc.data.partition import Partition, assemble, check_range, cut, shuffled, train_test
from fedhpc.data.table import SampleTable
from fedhpc.errors import ConfigError


@dataclass(frozen=True)
class Iid:
    """Shuffle the train and the test samples and cut each near-evenly over the clients.

    Attributes:
        clients: number of clients.
        test_fraction: share of the samples kept for testing where the dataset stores no split.
    """

    clients: int
    test_fraction: float = 0.2

    def __post_init__(self) -> None:
        check_range("clients", self.clients, 1)
        check_range("test_fraction", self.test_fraction, 0, 1, open_ends=True)

    def split(self, table: SampleTable, seed: int) -> Partition:
        """Return the partition; ConfigError if there are more clients than train or test samples."""
        train, test = train_test(table, self.test_fraction, seed)
        if self.clients > min(len(train), len(test)):
            raise ConfigError(
                f"partition.clients: {self.clients} clients cannot share {len(train)} train "
                f"and {len(test)} test samples"
            )
        parts = [cut(shuffled(s, seed, "iid", name), self.clients) for name, s in (("train", train), ("test", test))]
        return assemble(table, *parts)


PARTITION = Iid
