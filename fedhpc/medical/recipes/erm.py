"""Local training: every client keeps its own model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedhpc.medical.recipes._base import Recipe


@dataclass(frozen=True, kw_only=True)
class Local(Recipe):
    """Empirical risk minimisation without aggregation."""

    title: ClassVar[str] = "ERM"
    federated: ClassVar[bool] = False


RECIPE = Local
