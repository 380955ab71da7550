"""Plain federated training: passes over each client's samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedhpc.medical.recipes._base import Recipe


@dataclass(frozen=True, kw_only=True)
class Plain(Recipe):
    """Nothing special (McMahan et al., 2017)."""

    title: ClassVar[str] = "FedAvg"


RECIPE = Plain
