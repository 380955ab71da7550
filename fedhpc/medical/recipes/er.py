"""Federated training with experience replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from fedhpc.config import Limits
from fedhpc.data.balanced import ReplayPasses
from fedhpc.data.batches import BatchPlan
from fedhpc.errors import ConfigError
from fedhpc.medical.recipes._base import Memory, Recipe, Setting


@dataclass(frozen=True, kw_only=True)
class Replay(Recipe):
    """Each step joins samples of the current task and of the client's memory (Chaudhry et al., 2019).

    With `whole: total` a batch stays as large as without memory; `added` puts the memory's samples on top, so that
    steps cost more from the second task on, as in the original (with `capacity: null` and `share: 1`).
    """

    title: ClassVar[str] = "F-ER"
    capacity: Annotated[int | None, Limits(at_least=1), "samples in each client's memory; null: all"] = None
    policy: Annotated[Literal["reservoir", "ring"], "which samples stay"] = "reservoir"
    share: Annotated[float, Limits(above=0, at_most=1), "samples from memory, as a share of the batch"] = 0.5
    whole: Annotated[Literal["total", "added"], "whether they replace samples of the task"] = "total"

    @property
    def memory(self) -> Memory:
        """See `Recipe`."""
        return Memory(self.capacity, self.policy)

    def batches(self, setting: Setting) -> BatchPlan:
        """See `Recipe`."""
        remembered = max(1, round(self.share * setting.batch_size))
        own = setting.batch_size - remembered if self.whole == "total" else setting.batch_size
        if own < 1:
            raise ConfigError(
                f"recipe.share is {self.share:g}: a batch of {setting.batch_size} has no room for the task's own"
            )
        current = self.passes(setting, batch_size=own)
        return ReplayPasses(current, remembered, setting.num_memory, first_batch=setting.batch_size)


RECIPE = Replay
