"""Federated training with class-balanced batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedhpc.data.batches import BatchPlan
from fedhpc.medical.recipes._base import Recipe, Setting


@dataclass(frozen=True, kw_only=True)
class ClassBalanced(Recipe):
    """Every class of a client's task is drawn equally often."""

    title: ClassVar[str] = "F-CB"

    def batches(self, setting: Setting) -> BatchPlan:
        """See `Recipe`."""
        return self.passes(setting, setting.labels)


RECIPE = ClassBalanced
