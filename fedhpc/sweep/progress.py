"""How far a trial is: what of it, beside the model, has to survive a stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass
class Progress:
    """How far a trial is.

    Attributes:
        step: updates done.
        seconds_train: spent on updates, their data included.
        seconds_evaluate: spent on evaluations.
        evaluated: updates that were done at the last evaluation.
        sums: of each metric and of the seconds since the last evaluation, and how many values each sum has.
    """

    step: int = 0
    seconds_train: float = 0.0
    seconds_evaluate: float = 0.0
    evaluated: int = 0
    sums: dict[str, tuple[Any, int]] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Computed so far."""
        return self.seconds_train + self.seconds_evaluate

    def add(self, name: str, value: Any) -> None:
        """Take one value into a sum, in double precision as checkpoints keep it; tensors stay on their device."""
        total, count = self.sums.get(name, (0.0, 0))
        self.sums[name] = (total + (value.double() if isinstance(value, Tensor) else value), count + 1)

    def means(self) -> dict[str, float]:
        """Of each metric since the last evaluation."""
        return {name: float(total) / count for name, (total, count) in self.sums.items()}

    def tensors(self) -> dict[str, Tensor]:
        """The sums, for a checkpoint."""
        return {name: torch.as_tensor(total, dtype=torch.float64) for name, (total, _) in self.sums.items()}

    def values(self) -> dict[str, Any]:
        """Everything else, for a checkpoint."""
        return {
            "step": self.step,
            "seconds_train": self.seconds_train,
            "seconds_evaluate": self.seconds_evaluate,
            "evaluated": self.evaluated,
            "counts": {name: count for name, (_, count) in self.sums.items()},
        }

    @classmethod
    def restored(cls, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> Progress:
        """From a checkpoint's `tensors` and `values`."""
        sums = {name: (total, values["counts"][name]) for name, total in tensors.items()}
        step: int = values["step"]  # older checkpoints came after the step's evaluation
        return cls(step, values["seconds_train"], values["seconds_evaluate"], values.get("evaluated", step), sums)
