"""Federated training with each client's weights averaged over a loss valley."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedhpc.config import Limits
from fedhpc.medical.recipes._base import Averaging, Recipe

_AT_LEAST_1 = Limits(at_least=1)


@dataclass(frozen=True, kw_only=True)
class Averaged(Recipe):
    """SWAD (Cha et al., 2021) on each client's validation tasks; the plain model goes on being trained."""

    title: ClassVar[str] = "F-SWAD"
    evaluations: Annotated[
        int | None, _AT_LEAST_1, "validation evaluations per task that the valley is found by; null: 10, in compat 3"
    ] = None
    num_converge: Annotated[int, _AT_LEAST_1, "evaluations that a valley's start is judged by"] = 3
    num_tolerance: Annotated[int, _AT_LEAST_1, "evaluations above the threshold that end it"] = 6
    tolerance: Annotated[float, Limits(at_least=0), "threshold above the losses at the start"] = 0.05
    compat: Annotated[bool, "average as FedMedICL does, with its errors"] = False
    refresh_batches: Annotated[int, _AT_LEAST_1, "batches that the averaged model's batch norm is set by"] = 500

    def __post_init__(self) -> None:
        if self.evaluations is None:  # so that config.yaml says which it was
            object.__setattr__(self, "evaluations", 3 if self.compat else 10)
        super().__post_init__()

    @property
    def averaging(self) -> Averaging:
        """See `Recipe`."""
        assert self.evaluations is not None
        numbers = (self.num_converge, self.num_tolerance, self.tolerance)
        return Averaging(*numbers, self.compat, self.refresh_batches, self.evaluations)


RECIPE = Averaged
