"""Small trials on embedded data, and a sink that keeps what it is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedhpc.sweep.trial_folder import State
from fedhpc.sweep.trials import TrialSpec

SETUP = {"model": {"name": "mlp_features", "hidden": [16]}}


def small(algorithm: str = "erm", **changes: Any) -> TrialSpec:
    """A trial of a few steps."""
    values: dict[str, Any] = {
        "dataset": "rotated_digits", "algorithm": algorithm, "test_envs": (1,), "hparams_seed": 1, "trial_seed": 0,
        "steps": 8, "checkpoint_freq": 3, "hparams": {"batch_size": 8}, "setup": SETUP,
    }  # fmt: skip
    return TrialSpec(**{**values, **changes})


class Kept:
    """A sink in memory.

    Args:
        stop_after: questions (after every update, before every part of an evaluation) after which it asks for a stop.
        state: what the trial goes on from.
    """

    def __init__(self, stop_after: int | None = None, state: State | None = None) -> None:
        self.records: list[tuple[str, float, int, int | None]] = []
        self.state = state
        self.wanted: set[int] = set()
        self.models: dict[int, dict[str, Tensor]] = {}
        self.seen: list[int] = []
        self._left = stop_after

    def record(self, what: str, value: float, unit: str, step: int, seconds: float, environment: int | None) -> None:
        self.records.append((what, value, step, environment))

    def checkpoint_is_due(self) -> bool:
        return False

    def save(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        self.state = ({name: t.clone() for name, t in tensors.items()}, dict(values))

    def restore(self) -> State | None:
        return self.state

    def should_stop(self) -> bool:
        if self._left is None:
            return False
        self._left -= 1
        return self._left <= 0

    def progress(self, step: int, seconds: float) -> None:
        self.seen.append(step)

    def keeps(self, step: int) -> bool:
        return step in self.wanted

    def keep(self, step: int, model: Mapping[str, Tensor]) -> None:
        self.models[step] = dict(model)

    def without_times(self) -> list[tuple[str, float, int, int | None]]:
        """The records that must repeat."""
        return [record for record in self.records if record[0] not in ("step_seconds", "memory_gib")]
