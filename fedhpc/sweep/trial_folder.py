"""The folder of one trial while it runs: records, checkpoints, and how the next attempt goes on from them.

Every attempt writes into a folder of its own, `attempt-<n>`, so that a worker that was wrongly thought dead and its
successor never write to one file. The records move up when the trial is complete, and `done` is written last.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fedhpc.report.trial_files import DONE, METRICS
from fedhpc.runs.records import Record, RecordWriter
from fedhpc.runs.rundir import write_atomically

if TYPE_CHECKING:
    from torch import Tensor

_CHECKPOINT = "checkpoint.safetensors"
_META = "fedhpc"

State = tuple[dict[str, "Tensor"], dict[str, Any]]
"""Tensors by name, and small plain values."""


class Sink(Protocol):
    """What a trial tells while it runs."""

    def record(self, what: str, value: float, unit: str, step: int, seconds: float, environment: int | None) -> None:
        """Take one value."""
        ...

    def checkpoint_is_due(self) -> bool:
        """Whether the trial should be saved now."""
        ...

    def save(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Save the trial's state."""
        ...

    def restore(self) -> State | None:
        """The state to go on from, if there is one."""
        ...

    def should_stop(self) -> bool:
        """Whether the trial should save itself and end."""
        ...

    def progress(self, step: int, seconds: float) -> None:
        """Take note that the trial lives: how many steps are done, and the seconds it has computed."""
        ...

    def keeps(self, step: int) -> bool:
        """Whether the model after a step (0-based, as in the records) is to be kept."""
        ...

    def keep(self, step: int, model: Mapping[str, Tensor]) -> None:
        """Keep a model."""
        ...


class TrialFolder:
    """One attempt's files; a `Sink`.

    Args:
        folder: the trial's folder.
        attempt: number of this attempt.
        every: seconds between two checkpoints.
        should_stop: whether someone asked for a stop, or the trial belongs to another worker by now.
        progress: told of every step, and of every part of an evaluation.
        models: steps (0-based) after which the model is kept.

    Attributes:
        longest_save: seconds of the longest checkpoint.
    """

    def __init__(
        self,
        folder: Path,
        attempt: int,
        every: float = 300.0,
        should_stop: Callable[[], bool] = lambda: False,
        progress: Callable[[int, float], None] = lambda step, seconds: None,
        models: Collection[int] = (),
    ) -> None:
        self._folder, self._models = folder, models
        self._own = folder / f"attempt-{attempt}"
        self._every = every
        self._saved = time.monotonic()
        self.should_stop, self.progress = should_stop, progress
        self.longest_save = 0.0
        if self._own.exists():  # remains of a worker that died before it wrote its claim
            shutil.rmtree(self._own)
        self._own.mkdir(parents=True)
        self._state = self._take_from_before(attempt)
        self._writer = RecordWriter(self._own / METRICS)

    @property
    def is_complete(self) -> bool:
        """Whether another attempt finished it."""
        return (self._folder / DONE).exists()

    def _take_from_before(self, attempt: int) -> State | None:
        """Copy the checkpoint of the newest earlier attempt that has one, and the records that belong to it."""
        for number in range(attempt - 1, 0, -1):
            before = self._folder / f"attempt-{number}"
            try:
                state = _read(before / _CHECKPOINT)
                with (before / METRICS).open("rb") as records:
                    kept = records.read(state[1]["metrics_bytes"])
            except (OSError, ValueError, KeyError):
                continue  # none, or damaged: an older one, or from the start
            passed = [step for step in self._models if step < state[1]["step"]]
            if not has_models(self._folder, passed):
                continue  # a model that is to be kept was passed without being kept
            if len(kept) == state[1]["metrics_bytes"]:
                (self._own / METRICS).write_bytes(kept)
                return state
        return None

    def record(
        self, what: str, value: float, unit: str, step: int, seconds: float, environment: int | None = None
    ) -> None:
        """See `Sink.record`."""
        self._writer.write(Record(what, value, unit, step, seconds, environment=environment))

    def checkpoint_is_due(self) -> bool:
        """See `Sink.checkpoint_is_due`."""
        return time.monotonic() - self._saved >= self._every

    def save(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """See `Sink.save`; whole or not at all."""
        begun = time.monotonic()
        self._write(self._own / _CHECKPOINT, tensors, {**values, "metrics_bytes": self._writer.offset()})
        self._saved = time.monotonic()
        self.longest_save = max(self.longest_save, self._saved - begun)

    def _write(self, path: Path, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Write tensors, whole or not at all."""
        from safetensors.torch import save

        payload = save(
            {name: t.detach().cpu().contiguous() for name, t in tensors.items()}, metadata={_META: json.dumps(values)}
        )
        temporary = self._own / f".{path.name}.tmp"
        with temporary.open("wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)

    def keeps(self, step: int) -> bool:
        """See `Sink.keeps`."""
        return step in self._models

    def keep(self, step: int, model: Mapping[str, Tensor]) -> None:
        """See `Sink.keep`; every attempt writes the same."""
        self._write(model_file(self._folder, step), model, {"step": step, "trial": self._folder.name})

    def restore(self) -> State | None:
        """See `Sink.restore`."""
        return self._state

    def finish(self, done: Mapping[str, Any]) -> None:
        """Put the records in place, write `done`, remove what the attempts left."""
        self._writer.offset()
        self._writer.close()
        os.replace(self._own / METRICS, self._folder / METRICS)
        write_atomically(self._folder / DONE, json.dumps(done, indent=1) + "\n")
        for attempt in self._folder.glob("attempt-*"):
            shutil.rmtree(attempt, ignore_errors=True)

    def leave(self) -> None:
        """Close the files; the next attempt goes on from them."""
        self._writer.close()


def model_file(folder: Path, step: int) -> Path:
    """Where the model of a trial after a step (0-based) is kept: fit for `model.weights`."""
    return folder / f"model-step-{step}.safetensors"


def has_models(folder: Path, steps: Collection[int]) -> bool:
    """Whether the models of a trial after some steps are all kept."""
    return all(model_file(folder, step).exists() for step in steps)


def _read(path: Path) -> State:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            values = json.loads(file.metadata()[_META])
            return {name: file.get_tensor(name) for name in file.keys()}, values  # noqa: SIM118 (not a mapping)
    except SafetensorError as error:
        raise ValueError(str(error)) from None
