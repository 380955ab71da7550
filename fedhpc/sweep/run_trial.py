"""One trial: train on some environments, look at all of them now and then. Knows no ranks and no queue."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedhpc import registry
from fedhpc.data.environment_batches import EnvironmentBatches
from fedhpc.data.samples import Batch
from fedhpc.data.splits import EnvironmentSplit, split_table
from fedhpc.data.stores import Store
from fedhpc.errors import ConfigError
from fedhpc.objectives._domains import DomainObjective
from fedhpc.objectives.hparams import Value
from fedhpc.objectives.setting import NamedDraws, Setting
from fedhpc.report.trial_files import ORACLE, TEST, TRAIN, VALIDATION
from fedhpc.seeding import derive
from fedhpc.sweep.building import build_model, build_transform, choose_model, hparams_of, input_size
from fedhpc.sweep.trial_folder import Sink
from fedhpc.sweep.trials import TrialSpec
from fedhpc.tensors.vector import ParameterVector, sha256_float32
from fedhpc.train.scoring import hits
from fedhpc.train.solver import LocalSolver

_EVALUATED_AT_ONCE = 256
_GIB = 2**30


@dataclass
class Progress:
    """How far a trial is.

    Attributes:
        step: updates done.
        seconds_train: spent on updates, their data included.
        seconds_evaluate: spent on evaluations.
        sums: of each metric and of the seconds since the last evaluation, and how many values each sum has.
    """

    step: int = 0
    seconds_train: float = 0.0
    seconds_evaluate: float = 0.0
    sums: dict[str, tuple[Any, int]] = field(default_factory=dict)

    def add(self, name: str, value: Any) -> None:
        """Take one value into a sum, in double precision as checkpoints keep it; tensors stay on their device."""
        total, count = self.sums.get(name, (0.0, 0))
        self.sums[name] = (total + (value.double() if isinstance(value, Tensor) else value), count + 1)


class Trial:
    """A trial, ready to run.

    Args:
        spec: what is to be done.
        store: the dataset.
        device: name of the device to train on.
        weights_file: where the file of starting weights lies, if the trial has one.

    Attributes:
        hparams: the hyperparameters.
        progress: how far it is.

    Raises:
        ConfigError: what is asked for cannot be done with this dataset.
    """

    def __init__(self, spec: TrialSpec, store: Store, device: str = "cpu", weights_file: str | None = None) -> None:
        self.spec, self._store, self._device = spec, store, torch.device(device)
        self.hparams: dict[str, Value] = hparams_of(spec)
        self.progress = Progress()
        self._splits = split_table(
            store.table, spec.trial_seed, spec.test_envs, spec.holdout_fraction,
            stratified=bool(spec.setup.get("stratified")),
        )  # fmt: skip
        self._training = [e for e in range(len(self._splits)) if e not in spec.test_envs]
        if not self._training:
            raise ConfigError(f"sweep.test_envs: {list(spec.test_envs)} leaves no environment to train on")
        labels = store.table.labels
        self._labels = {e: labels[self._splits[e].inside] for e in self._training}
        self._all_labels = labels
        self._batches = EnvironmentBatches(
            spec.seed, int(self.hparams["batch_size"]), bool(self.hparams["class_balanced"])
        )
        self._build(weights_file)

    def _build(self, weights_file: str | None) -> None:
        manifest = self._store.manifest
        height, width = input_size(self.spec.setup, manifest.height, manifest.width, manifest.channels)
        choice = choose_model(self.spec.setup, self.hparams, height, width)
        torch.manual_seed(self._stream("init"))
        shape = (manifest.channels, height, width)
        model = build_model(choice, shape, len(manifest.classes), self.hparams, weights_file).to(self._device)
        self._transform = build_transform(
            self.spec.setup, manifest, bool(self.hparams["data_augmentation"]), choice.dtype
        )
        self._vector = ParameterVector(model)
        setting = Setting(len(self._training), self.hparams, self.spec.profile, NamedDraws(self.spec.seed))  # type: ignore[arg-type]
        kind = registry.load("fedhpc.objectives", self.spec.algorithm).OBJECTIVE
        if not issubclass(kind, DomainObjective):
            raise ConfigError(f"sweep.algorithms: {self.spec.algorithm} personalises to a client; it has no trials")
        self._objective: DomainObjective = kind(model, self._vector, setting).to(self._device)
        self._solver = LocalSolver(self._vector, self._objective, self._objective.main_optimizer())

    def _stream(self, *names: str | int) -> int:
        return derive(self.spec.seed, *names) % 2**63

    def run(self, sink: Sink) -> bool:
        """Train to the end; returns False if the sink asked for a stop before it (the state is saved)."""
        self._restore(sink)
        self._objective.train()
        steps, freq = self.spec.steps, self.spec.checkpoint_freq
        while self.progress.step < steps:
            begun = time.perf_counter()
            self.train_one_step()
            self._synchronize()
            self.progress.seconds_train += time.perf_counter() - begun
            self.progress.add("step_seconds", time.perf_counter() - begun)
            done = self.progress.step
            if (done - 1) % freq == 0 or done == steps:
                self._evaluate(sink)
            if done < steps and (sink.should_stop() or sink.checkpoint_is_due()):
                self._save(sink)
                if sink.should_stop():
                    return False
        return True

    def train_one_step(self) -> None:
        """One update on one minibatch of every training environment."""
        step = self.progress.step
        torch.manual_seed(self._stream("dropout", step))
        report = self._solver.step([self._minibatch(place, e, step) for place, e in enumerate(self._training)])
        for name, value in (report.metrics or {"loss": report.loss}).items():
            self.progress.add(name, value)
        self.progress.step += 1

    def _minibatch(self, place: int, environment: int, step: int) -> Batch:
        positions = self._batches.positions(environment, step, self._labels[environment])
        x, y = self._read(self._splits[environment].inside[positions])
        noise = torch.Generator().manual_seed(self._stream("augment", environment, step))
        return Batch(self._transform(x, noise, True), y, place)

    def _read(self, indices: np.ndarray) -> tuple[Tensor, Tensor]:
        pixels = torch.from_numpy(self._store.images(indices)).to(self._device)
        return pixels, torch.from_numpy(self._all_labels[indices]).to(self._device)

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _evaluate(self, sink: Sink) -> None:
        """Record the means since the last evaluation, and the accuracy on every part of every environment."""
        progress, begun = self.progress, time.perf_counter()
        step = progress.step - 1

        def record(what: str, value: float, unit: str = "", environment: int | None = None) -> None:
            sink.record(what, value, unit, step, progress.seconds_train, environment)

        for name, (total, count) in progress.sums.items():
            record(name, float(total) / count, "seconds" if name == "step_seconds" else "")
        progress.sums.clear()
        smallest = min(len(split.inside) for split in self._splits)
        record("epoch", step * self._batches.batch_size / smallest, "epochs")
        record("memory_gib", self._memory(), "GiB")
        for environment, split in enumerate(self._splits):
            for what, indices in self._parts(environment, split):
                noise = None
                if environment in self._training and self.spec.setup.get("validation") != "plain":
                    noise = torch.Generator().manual_seed(self._stream("augment", what, environment, step))
                record(what, self.accuracy(indices, noise), "fraction", environment)
        self._objective.train()
        progress.seconds_evaluate += time.perf_counter() - begun

    def _parts(self, environment: int, split: EnvironmentSplit) -> Iterable[tuple[str, np.ndarray]]:
        if environment in self.spec.test_envs:
            return ((TEST, split.inside), (ORACLE, split.outside))
        if self.spec.setup.get("train_accuracy", True):
            return ((TRAIN, split.inside), (VALIDATION, split.outside))
        return ((VALIDATION, split.outside),)

    def _memory(self) -> float:
        return torch.cuda.max_memory_allocated(self._device) / _GIB if self._device.type == "cuda" else 0.0

    def accuracy(self, indices: np.ndarray, noise: torch.Generator | None = None) -> float:
        """Fraction of some samples that the model has right; NaN without samples.

        Args:
            indices: of the samples.
            noise: stream of the augmentation; None looks at the images as they are.
        """
        right = total = 0.0
        self._objective.eval()
        with torch.no_grad():
            for start in range(0, len(indices), _EVALUATED_AT_ONCE):
                x, y = self._read(indices[start : start + _EVALUATED_AT_ONCE])
                found, rows = hits(self._objective.predict(self._transform(x, noise, noise is not None)), y)
                right, total = right + found, total + rows
        return right / total if total else float("nan")

    def _save(self, sink: Sink) -> None:
        progress = self.progress
        tensors = {"weights": self._vector.weights, "buffers": self._vector.buffers}
        tensors["counters"] = self._vector.counters()
        tensors |= {f"objective/{name}": value for name, value in self._objective.own_state().items()}
        tensors |= {f"solver/{name}": value for name, value in self._solver.state().items()}
        values = {
            "step": progress.step,
            "seconds_train": progress.seconds_train,
            "seconds_evaluate": progress.seconds_evaluate,
        }
        sums = {name: torch.as_tensor(total, dtype=torch.float64) for name, (total, _) in progress.sums.items()}
        counts = {name: count for name, (_, count) in progress.sums.items()}
        tensors |= {f"sum/{name}": total for name, total in sums.items()}
        sink.save(tensors, {**values, "counts": counts})

    def _restore(self, sink: Sink) -> None:
        state = sink.restore()
        if state is None:
            return
        tensors, values = state

        def below(prefix: str) -> Mapping[str, Tensor]:
            return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}

        self._vector.weights.copy_(tensors["weights"])
        self._vector.buffers.copy_(tensors["buffers"])
        self._vector.set_counters(tensors["counters"])
        self._objective.load_own_state(below("objective/"))
        self._solver.load_state({n: t.to(self._device) if t.dim() else t for n, t in below("solver/").items()})
        sums = {name: (total, values["counts"][name]) for name, total in below("sum/").items()}
        self.progress = Progress(values["step"], values["seconds_train"], values["seconds_evaluate"], dict(sums))

    def done(self) -> dict[str, Any]:
        """What `done` says about it."""
        manifest = self._store.manifest
        return {
            "format": 1,
            "id": self.spec.id,
            "spec": self.spec.full_dict(),
            "hparams": self.hparams,
            "environments": list(manifest.environments),
            "num_environments": len(manifest.environments),
            "num_samples": manifest.num_samples,
            "seconds_train": self.progress.seconds_train,
            "seconds_evaluate": self.progress.seconds_evaluate,
            "weights_sha256": sha256_float32(self._vector.weights),
        }


def run_trial(
    spec: TrialSpec, store: Store, sink: Sink, device: str = "cpu", weights_file: str | None = None
) -> dict[str, Any] | None:
    """Run one trial; returns what its `done` should say, or None if the sink asked for a stop.

    Raises:
        ConfigError: it cannot be run on this dataset.
    """
    trial = Trial(spec, store, device, weights_file)
    return trial.done() if trial.run(sink) else None
