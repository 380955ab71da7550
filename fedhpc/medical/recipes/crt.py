"""Federated training in two stages: the representation, then a classifier on balanced batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedhpc.config import Limits
from fedhpc.medical.recipes._base import HeadStage, Recipe


@dataclass(frozen=True, kw_only=True)
class Retrained(Recipe):
    """Classifier re-training (Kang et al., 2020): each task ends with rounds in which only a fresh classifier learns.

    With `compat` as FedMedICL does it: every round is followed by as many steps of the head, without balancing and
    without a fresh head.
    """

    title: ClassVar[str] = "F-CRT"
    head_share: Annotated[float, Limits(above=0, below=1), "share of a task's rounds that train the head alone"] = 0.3
    reset: Annotated[bool, "begin each task's second stage with a fresh classifier"] = True
    compat: Annotated[bool, "as FedMedICL does it"] = False

    def head_stage(self, rounds_per_task: int) -> HeadStage:
        """See `Recipe`."""
        if self.compat:
            return HeadStage(None, reset=False, balanced=False)
        head_rounds = min(max(1, round(self.head_share * rounds_per_task)), rounds_per_task - 1)
        return HeadStage(rounds_per_task - head_rounds, self.reset, balanced=True)


RECIPE = Retrained
