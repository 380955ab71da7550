"""Tasks with given shares of the groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedhpc.errors import ConfigError
from fedhpc.medical.scenarios._base import Scenario


@dataclass(frozen=True, kw_only=True)
class GroupRatios(Scenario):
    """One list of shares per task, one share per group in the order of descending size.

    All tasks of a client are as large as its scarcest group allows; what the shares do not ask for is reported.
    """

    shares: Annotated[tuple[tuple[float, ...], ...], "per task the share of each group"] = (
        (1.0, 0.0),
        (0.8, 0.2),
        (0.5, 0.5),
        (0.2, 0.8),
        (0.0, 1.0),
    )
    tasks: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.shares) != self.tasks:
            raise ConfigError(f"shares has {len(self.shares)} rows, tasks is {self.tasks}; one row per task")
        for row in self.shares:
            if len(row) != len(self.shares[0]) or min(row) < 0 or abs(sum(row) - 1) > 1e-9:
                raise ConfigError(f"shares must be rows of equal length that sum to 1, got {list(row)}")

    def train_counts(self, sizes: np.ndarray, num_tasks: int, client: int, rng: np.random.Generator) -> np.ndarray:
        """The largest tasks with exactly these shares."""
        self.check_width(len(sizes))
        shares = np.array(self.shares)
        asked = shares.sum(0)
        most = min(float(n) / a for n, a in zip(sizes, asked, strict=True) if a > 0)
        return np.floor(shares * most + 1e-9).astype(np.int64)

    def check_width(self, num_groups: int) -> None:
        """Raise ConfigError unless there is one share per group."""
        if num_groups != len(self.shares[0]):
            raise ConfigError(
                f"scenario.shares has {len(self.shares[0])} entries per task, there are {num_groups} groups"
            )


SCENARIO = GroupRatios
