"""Label skew: each class is spread over the clients by proportions drawn from a Dirichlet distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhpc.data.partition import Partition, assemble, check_range, shuffled, train_test
from fedhpc.data.table import SampleTable
from fedhpc.errors import ConfigError
from fedhpc.seeding import generator


@dataclass(frozen=True)
class Dirichlet:
    """For every class, draw client proportions p ~ Dirichlet(alpha, .., alpha) and cut the class by them.

    Train and test samples of a class are cut by the same p, so a client is tested on the mixture it trains on (each
    count is within one sample of p times the class size). A small alpha starves clients; the draw is then repaired,
    not repeated, so that it always ends: a client short of train samples takes them from the client that has most, of
    that one's most frequent class; a client without a test sample takes one of the class it trains on most, if any
    is free, from the client with most of them. Repairs are counted in the partition's notes.

    Attributes:
        clients: number of clients.
        alpha: concentration; 0.1 is strong skew, 100 is nearly iid.
        min_samples: train samples every client gets at least.
        test_fraction: share of the samples kept for testing where the dataset stores no split.
    """

    clients: int
    alpha: float = 0.5
    min_samples: int = 10
    test_fraction: float = 0.2

    def __post_init__(self) -> None:
        check_range("clients", self.clients, 1)
        check_range("alpha", self.alpha, 0, open_ends=True)
        check_range("min_samples", self.min_samples, 1)
        check_range("test_fraction", self.test_fraction, 0, 1, open_ends=True)

    def split(self, table: SampleTable, seed: int) -> Partition:
        """Return the partition; ConfigError if the samples cannot give every client its minimum."""
        train, test = train_test(table, self.test_fraction, seed)
        if self.clients * self.min_samples > len(train) or self.clients > len(test):
            raise ConfigError(
                f"partition: {self.clients} clients with at least {self.min_samples} train samples and 1 test sample "
                f"need {self.clients * self.min_samples} and {self.clients}; there are {len(train)} and {len(test)}"
            )
        shares = self._shares(table.num_classes, seed)
        offsets = generator(seed, "partition", "dirichlet", "offsets").random(table.num_classes)
        train_counts, test_counts = (
            _cut_counts(shares, np.bincount(table.labels[s], minlength=table.num_classes), offsets)
            for s in (train, test)
        )
        fed = _feed_train(train_counts, self.min_samples)
        given = _feed_test(test_counts, train_counts)
        notes = [f"{fed} of {self.clients} clients were filled up to {self.min_samples} train samples"] if fed else []
        notes += [f"{given} of {self.clients} clients were given their only test sample"] if given else []
        parts = [
            _take(table, samples, counts, seed, name)
            for name, samples, counts in (("train", train, train_counts), ("test", test, test_counts))
        ]
        return assemble(table, *parts, notes=notes)

    def _shares(self, num_classes: int, seed: int) -> np.ndarray:
        """[num_classes, clients], rows sum to one; one stream per class."""
        rows = []
        for label in range(num_classes):
            stream = generator(seed, "partition", "dirichlet", "shares", label)
            rows.append(stream.dirichlet(np.full(self.clients, self.alpha)))
        return np.array(rows)


def _cut_counts(shares: np.ndarray, class_sizes: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Turn shares into whole counts [clients, num_classes] that use every sample, each within one of its share.

    Each class rounds its borders at an offset of its own (in [0, 1)): rounded alike, even shares of small classes
    would leave the same clients empty-handed in every class.
    """
    borders = np.floor(np.cumsum(shares, axis=1) * class_sizes[:, None] + offsets[:, None]).astype(np.int64)
    borders = np.minimum(borders, class_sizes[:, None])
    borders[:, -1] = class_sizes
    return np.diff(borders, axis=1, prepend=0).T.copy()


def _feed_train(counts: np.ndarray, min_samples: int) -> int:
    """Fill clients up to `min_samples` in place; return how many needed it."""
    hungry = np.flatnonzero(counts.sum(axis=1) < min_samples)
    for client in hungry:
        while (short := min_samples - counts[client].sum()) > 0:
            totals = counts.sum(axis=1)
            donor = int(totals.argmax())
            label = int(counts[donor].argmax())
            moved = min(short, counts[donor, label], totals[donor] - min_samples)
            counts[donor, label] -= moved
            counts[client, label] += moved
    return len(hungry)


def _feed_test(counts: np.ndarray, train_counts: np.ndarray) -> int:
    """Give each client without test samples one, in place; return how many needed it."""
    hungry = np.flatnonzero(counts.sum(axis=1) == 0)
    for client in hungry:
        spare = np.where(counts.sum(axis=1)[:, None] > 1, counts, 0)
        free = spare.max(axis=0) > 0
        # Classes the client trains on come first, most frequent first; any other free class is the last resort.
        label = int(np.where(free, train_counts[client], -1).argmax())
        donor = int(spare[:, label].argmax())
        counts[donor, label] -= 1
        counts[client, label] += 1
    return len(hungry)


def _take(table: SampleTable, samples: np.ndarray, counts: np.ndarray, seed: int, name: str) -> list[np.ndarray]:
    """Hand out the shuffled samples of every class by the counts [clients, num_classes]."""
    pieces: list[list[np.ndarray]] = [[] for _ in range(len(counts))]
    for label in range(counts.shape[1]):
        mixed = shuffled(samples[table.labels[samples] == label], seed, "dirichlet", name, label)
        for client, piece in enumerate(np.split(mixed, np.cumsum(counts[:-1, label]))):
            pieces[client].append(piece)
    return [np.concatenate(p) for p in pieces]


PARTITION = Dirichlet
