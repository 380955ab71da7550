"""One trial: train on some environments, look at all of them now and then. Knows no ranks and no queue."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
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
from fedhpc.sweep.progress import Progress
from fedhpc.sweep.trial_folder import Sink
from fedhpc.sweep.trials import TrialSpec
from fedhpc.tensors.streams import seed_torch
from fedhpc.tensors.vector import ParameterVector, sha256_float32
from fedhpc.train.scoring import hits
from fedhpc.train.solver import LocalSolver

_EVALUATED_AT_ONCE = 256
_GIB = 2**30


class _InterruptedError(Exception):
    """A stop was asked for in the middle of an evaluation."""


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
        diverged: whether its last losses or its weights are not finite; known at the end.

    Raises:
        ConfigError: what is asked for cannot be done with this dataset.
    """

    def __init__(self, spec: TrialSpec, store: Store, device: str = "cpu", weights_file: str | None = None) -> None:
        self.spec, self._store, self._device = spec, store, torch.device(device)
        self.hparams: dict[str, Value] = hparams_of(spec)
        self.progress = Progress()
        self.diverged = False
        self._splits = split_table(
            store.table, spec.trial_seed, spec.test_envs, spec.holdout_fraction,
            stratified=bool(spec.setup.get("stratified")), stored=bool(spec.setup.get("stored_split")),
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
        seed_torch(self._stream("init"))
        shape = (manifest.channels, height, width)
        model = build_model(choice, shape, len(manifest.classes), self.hparams, weights_file).to(self._device)
        if self._device.type == "cuda":  # the peak of the trial before says nothing about this one
            torch.cuda.reset_peak_memory_stats(self._device)
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
        evaluated = self._evaluate_if_due(sink)  # a stop may have come between a step and its evaluation
        while evaluated and self.progress.step < self.spec.steps:
            self._timed_step()
            done = self.progress.step
            sink.progress(done, self.progress.seconds)
            if sink.keeps(done - 1):
                sink.keep(done - 1, {n: t.detach().clone() for n, t in self._objective.model.state_dict().items()})
            evaluated = self._evaluate_if_due(sink)
            if evaluated and done < self.spec.steps and (sink.should_stop() or sink.checkpoint_is_due()):
                self._save(sink)
                if sink.should_stop():
                    return False
        if not evaluated:
            self._save(sink)
        return evaluated

    def _timed_step(self) -> None:
        begun = time.perf_counter()
        self.train_one_step()
        self.synchronize()
        self.progress.seconds_train += time.perf_counter() - begun
        self.progress.add("step_seconds", time.perf_counter() - begun)

    def train_one_step(self) -> None:
        """One update on one minibatch of every training environment."""
        step = self.progress.step
        seed_torch(self._stream("dropout", step))
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

    def synchronize(self) -> None:
        """Wait for the device's queued work."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _evaluate_if_due(self, sink: Sink) -> bool:
        """Evaluate and record after the steps that ask for it; returns False if the sink asked for a stop meanwhile."""
        progress, spec, begun = self.progress, self.spec, time.perf_counter()
        done = progress.step
        due = done > 0 and ((done - 1) % spec.checkpoint_freq == 0 or done == spec.steps)
        if not due or progress.evaluated == done:
            return True
        means = progress.means()

        def proceed() -> bool:
            sink.progress(done, self.progress.seconds)
            return not sink.should_stop()

        try:
            accuracies = list(self._accuracies(proceed))
        except _InterruptedError:
            return False
        finally:
            self._objective.train()
            progress.seconds_evaluate += time.perf_counter() - begun
        self._record(sink, means, accuracies)
        progress.sums.clear()
        progress.evaluated = done
        self.diverged = not all(map(math.isfinite, means.values())) or not bool(self._vector.weights.isfinite().all())
        return True

    def _record(self, sink: Sink, means: Mapping[str, float], accuracies: Iterable[tuple[str, float, int]]) -> None:
        """Write the means since the last evaluation, and the accuracy on every part of every environment."""
        step, seconds = self.progress.step - 1, self.progress.seconds_train
        for name, mean in means.items():
            sink.record(name, mean, "seconds" if name == "step_seconds" else "", step, seconds, None)
        smallest = min(len(split.inside) for split in self._splits)
        sink.record("epoch", step * self._batches.batch_size / smallest, "epochs", step, seconds, None)
        sink.record("memory_gib", self._memory(), "GiB", step, seconds, None)
        for what, accuracy, environment in accuracies:
            sink.record(what, accuracy, "fraction", step, seconds, environment)

    def _accuracies(self, proceed: Callable[[], bool]) -> Iterable[tuple[str, float, int]]:
        for what, environment, indices, augmented in self.parts():
            noise = None
            if augmented:
                seed = self._stream("augment", what, environment, self.progress.step - 1)
                noise = torch.Generator().manual_seed(seed)
            yield what, self.accuracy(indices, noise, proceed), environment

    def parts(self) -> Iterable[tuple[str, int, np.ndarray, bool]]:
        """What an evaluation looks at: name, environment, samples, and whether their images are augmented."""
        augmented = self.spec.setup.get("validation") != "plain"
        for environment, split in enumerate(self._splits):
            for what, indices in self._parts(environment, split):
                yield what, environment, indices, augmented and environment in self._training

    def _parts(self, environment: int, split: EnvironmentSplit) -> Iterable[tuple[str, np.ndarray]]:
        if environment in self.spec.test_envs:
            return ((TEST, split.inside), (ORACLE, split.outside))
        if self.spec.setup.get("train_accuracy", True):
            return ((TRAIN, split.inside), (VALIDATION, split.outside))
        return ((VALIDATION, split.outside),)

    def _memory(self) -> float:
        return torch.cuda.max_memory_allocated(self._device) / _GIB if self._device.type == "cuda" else 0.0

    def accuracy(
        self,
        indices: np.ndarray,
        noise: torch.Generator | None = None,
        proceed: Callable[[], bool] = lambda: True,
    ) -> float:
        """Fraction of some samples that the model has right; NaN without samples.

        Args:
            indices: of the samples.
            noise: stream of the augmentation; None looks at the images as they are.
            proceed: asked before every minibatch.

        Raises:
            _InterruptedError: `proceed` said no.
        """
        right = total = 0.0
        self._objective.eval()
        with torch.no_grad():
            for start in range(0, len(indices), _EVALUATED_AT_ONCE):
                if not proceed():
                    raise _InterruptedError
                x, y = self._read(indices[start : start + _EVALUATED_AT_ONCE])
                found, rows = hits(self._objective.predict(self._transform(x, noise, noise is not None)), y)
                right, total = right + found, total + rows
        return right / total if total else float("nan")

    def _save(self, sink: Sink) -> None:
        tensors = {"weights": self._vector.weights, "buffers": self._vector.buffers}
        tensors["counters"] = self._vector.counters()
        tensors |= {f"objective/{name}": value for name, value in self._objective.own_state().items()}
        tensors |= {f"solver/{name}": value for name, value in self._solver.state().items()}
        tensors |= {f"sum/{name}": total for name, total in self.progress.tensors().items()}
        sink.save(tensors, self.progress.values())

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
        self.progress = Progress.restored(below("sum/"), values)

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
            "diverged": self.diverged,
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
