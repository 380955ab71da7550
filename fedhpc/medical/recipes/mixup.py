"""Federated training on mixed samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedhpc.medical.recipes._base import Recipe


@dataclass(frozen=True, kw_only=True)
class Mixed(Recipe):
    """Mixup inside each batch (Zhang et al., 2018)."""

    title: ClassVar[str] = "F-MixUp"
    objective: ClassVar[str] = "batch_mixup"


RECIPE = Mixed
