"""A medical run: its timeline on every rank, and one engine after another, a stage of a task each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhpc.comm.world import World
from fedhpc.commands import _federation as build
from fedhpc.commands import _unused
from fedhpc.data.stores import Store
from fedhpc.data.timeline import PARTS, Timeline
from fedhpc.errors import ConfigError, FedhpcError
from fedhpc.medical.config import MedicalConfig
from fedhpc.medical.describe import scenario_tree
from fedhpc.medical.stages import Stage, stages
from fedhpc.seeding import derive

if TYPE_CHECKING:
    from fedhpc.data.batches import BatchPlan
    from fedhpc.federated.engine import Engine
    from fedhpc.federated.records import Sink
    from fedhpc.federated.state import EngineSettings, Saver
    from fedhpc.medical.exam import TaskExam
    from fedhpc.medical.recipes._base import Setting
    from fedhpc.medical.task_data import TaskData, TaskRows
    from fedhpc.models.base import Network
    from fedhpc.timing import Stopwatch
    from fedhpc.train.local import LocalTrainer


@dataclass(frozen=True)
class MedicalData:
    """A dataset as every rank has it, and who holds what when; `digest` tells it from others of its name, on root."""

    store: Store
    timeline: Timeline
    notes: tuple[str, ...]
    digest: str = ""


def open_data(world: World, config: MedicalConfig) -> MedicalData:
    """Open the dataset on root, divide it, and tell the other ranks; the timeline travels as buffers.

    Raises:
        AgreedError: damaged data, or a scenario that is not possible; on every rank.
    """
    store, divided, digest = build.open_together(world, config, lambda store: divide(config, store))
    timeline = _share(world, divided)
    return MedicalData(store, timeline, timeline.notes, digest)


def divide(config: MedicalConfig, store: Store) -> Timeline:
    """Who holds what when; without torch.

    Raises:
        ConfigError: the scenario is not possible with these data.
    """
    config.scenario.units(store.table)  # mode compat has no use for them, but scenario.json counts them
    values = {name: about.get("values", ()) for name, about in store.manifest.attributes.items()}
    timeline = config.scenario.timeline(store.table, config.seed).named(values)
    _check(config, timeline)
    return timeline


def _check(config: MedicalConfig, timeline: Timeline) -> None:
    """Refuse what would fail in the middle of a run.

    Raises:
        ConfigError: a task without clients, or clients whose averaging has nothing to be steered by.
    """
    empty = [t + 1 for t in range(timeline.num_tasks) if not timeline.present(t)]
    if empty:
        raise ConfigError(f"scenario: no client has training samples in task {', '.join(map(str, empty))}")
    if config.recipe.averaging is None:
        return
    short = [
        f"client {c} task {t + 1}"
        for t in range(timeline.num_tasks)
        for c in timeline.present(t)
        if not len(timeline.validation[c][t])
    ]
    if short:
        more = f" and {len(short) - 8} more" if len(short) > 8 else ""
        raise ConfigError(
            f"recipe {config.recipe_name} is steered by validation samples, and there are none for "
            f"{', '.join(short[:8])}{more}; raise scenario.validation_fraction or ask for fewer clients or tasks"
        )


def _share(world: World, timeline: Timeline | None) -> Timeline:
    """Send root's timeline to all ranks: its indices as buffers, its names as small values."""
    import torch

    arrays = timeline.to_arrays() if timeline else {}
    names = (timeline.kinds, timeline.group_names, dict(timeline.unused), timeline.notes) if timeline else None
    told: Any = world.share(names)
    sizes: dict[str, int] = world.share({name: len(values) for name, values in arrays.items()})
    received = {}
    for name, size in sizes.items():
        flat = torch.from_numpy(arrays[name].copy()) if timeline else torch.empty(size, dtype=torch.int64)
        world.broadcast_(flat)
        received[name] = flat.numpy().astype(np.int64, copy=False)
    if timeline is not None:
        return timeline
    return replace(Timeline.from_arrays(received, told[0], told[1]), unused=told[2], notes=told[3])


def report_of(config: MedicalConfig, data: MedicalData) -> dict[str, Any]:
    """Who holds what when, for scenario.json; of clients of one environment each, which classes are there."""
    from fedhpc.commands._medical_clients import environment_classes

    table = data.store.table
    tree = {"data": data.digest, **scenario_tree(data.timeline, table, config.scenario.units(table))}
    if config.scenario.by_environment:
        tree["client_classes"] = [np.flatnonzero(known).tolist() for known in environment_classes(data)]
    return tree


def unused_settings(config: MedicalConfig, data: MedicalData) -> list[str]:
    """What a user should know of this combination: said once, never silently ignored."""
    found = _unused.unused_settings(config)
    if config.evaluate.every != 1:
        found.append("evaluate.every has no effect in a medical run: models are examined where a task ends")
    if config.evaluate.target_accuracy is not None:
        found.append("evaluate.target_accuracy does not stop a medical run")
    untested = [t + 1 for t in range(data.timeline.num_tasks) if not any(len(c[t]) for c in data.timeline.test)]
    if untested:
        found.append(f"no client has test samples of task {', '.join(map(str, untested))}: its scores are not a number")
    found += _holdout_notes(config, data)
    for part in PARTS:
        if data.timeline.duplicates()[part]:
            found.append(f"{data.timeline.duplicates()[part]} {part} samples are used more than once")
    return [*found, *data.notes]


def _holdout_notes(config: MedicalConfig, data: MedicalData) -> list[str]:
    """What the hold-out's scores will lack."""
    rows, table = data.timeline.holdout, data.store.table
    if not len(rows):
        return ["the hold-out is empty, so there will be no scores of it (scenario.holdout_fraction, others_per_new)"]
    if config.scenario_kind != "novel_disease":
        return []
    new = config.scenario.novel(table.num_classes)
    if (table.labels[rows] == new).any():
        return []
    return [f"the hold-out has no samples of the new class, {table.class_names[new]}: its accuracy is not a number"]


class MedicalRun:
    """Everything that the engines of one medical run share.

    Args:
        world: the ranks.
        config: the configuration.
        data: dataset and timeline.
        model: this rank's network.
        device: where it computes.
    """

    def __init__(self, world: World, config: MedicalConfig, data: MedicalData, model: Network, device: str) -> None:
        import torch

        from fedhpc.commands._medical_clients import Extras
        from fedhpc.medical.task_data import TaskRows

        self._world, self._config, self._data, self._model = world, config, data, model
        self._device = torch.device(device)
        plain = replace(config, local=replace(config.local, objective=config.recipe.objective))
        opened = build.OpenedData(data.store, data.timeline.partition(0))
        transform = build.build_transform(config, data.store)
        self._rows: TaskRows = TaskRows(data.timeline, data.store.table.labels, config.recipe.memory, config.seed)
        self.trainer: LocalTrainer = build.build_trainer(plain, model, transform, opened)
        self.stages = stages(config.recipe, data.timeline.num_tasks, config.rounds)
        self._freeze_bn = model.freeze_bn
        self._setting: Setting = self._rows.setting(config.local.batch_size, config.local.steps or 1, config.rounds)
        extras = Extras(config, data, model, self.trainer, self.stages, self._setting)
        self._extensions = extras.extensions(self._task(0))

    def engine(self, stage: Stage, sink: Sink, clock: Stopwatch, saver: Saver, stop: Callable[[], bool]) -> Engine:
        """The engine of one stage, with this rank's trainer set to it."""
        from fedhpc.federated.cohorts import ListedCohorts
        from fedhpc.federated.engine import Engine

        self._prepare(stage)
        timeline, rounds = self._data.timeline, self._config.rounds
        cohorts = ListedCohorts([timeline.present(t) for t in range(timeline.num_tasks) for _ in range(rounds)])
        clients = self._task(stage.task)
        return Engine(
            self._world,
            self._config.algorithm,
            self.trainer,
            clients,
            cohorts,
            self._settings(stage),
            sink,
            clock=clock,
            saver=saver,
            stop_requested=stop,
            exam=self._exam(clients) if stage.examined else None,
            extensions=self._extensions,
        )

    def begin(self, stage: Stage, engine: Engine) -> None:
        """What happens before a stage's first round: nothing, or a fresh classifier for all clients."""
        import torch

        from fedhpc.medical.longtail import head_names, reset_head

        if engine.progress.round == 0:
            engine.progress.evaluated = 0  # nothing is examined before training
        if not stage.reset or engine.progress.round != stage.first:
            return
        vector, names = self.trainer.vector, head_names(self._model)
        reset_head(self._model, torch.Generator().manual_seed(derive(self._config.seed, "head", stage.task) % 2**63))
        parts = [slice(slot.start, slot.stop) for slot in vector.layout if slot.name in names]
        if engine.server is not None:
            for part in parts:
                engine.server.vectors["weights"][part] = vector.weights[part].to("cpu", torch.float64)
        engine.forget(parts)

    def _prepare(self, stage: Stage) -> None:
        """Set the trainer to a stage: which parameters move, and which batches they see."""
        from fedhpc.medical.carried import backbone_of

        self.trainer.batches = self._batches(stage)
        self.trainer.solver.freeze(backbone_of(self._model, self.trainer.vector) if stage.head else ())
        self._model.freeze_bn = self._freeze_bn or stage.head

    def _batches(self, stage: Stage) -> BatchPlan:
        recipe, setting = self._config.recipe, self._setting
        head = recipe.head_stage(self._config.rounds)
        if stage.head and head is not None and head.balanced:
            return replace(recipe.passes(setting, setting.labels), stream="head")
        if head is not None and head.first_round is None:
            return recipe.batches(replace(setting, steps=2 * setting.steps))
        return recipe.batches(setting)

    def _task(self, task: int) -> TaskData:
        from fedhpc.medical.task_data import TaskData

        store = self._data.store
        return TaskData(store, store.table.labels, self._data.timeline, self._rows, task, self._device)

    def _exam(self, clients: TaskData) -> TaskExam:
        from fedhpc.commands._medical_clients import known_classes
        from fedhpc.medical.exam import OwnModelExam, TaskExam

        recipe, evaluate = self._config.recipe, self._config.evaluate
        labels, rounds = self._data.store.table.labels, self._config.rounds
        asked = (self._data.timeline, labels, clients.read, rounds, evaluate.batch_size, evaluate.model)
        if recipe.own_weights or recipe.averaging:
            return OwnModelExam(*asked, known=known_classes(self._config, self._data))
        return TaskExam(*asked)

    def _settings(self, stage: Stage) -> EngineSettings:
        settings, summed = build.engine_settings(self._config), self._config.algorithm.traffic.summed
        sums = replace(settings.sums, buffer_weighting=summed.get("delta", "samples"))
        if not self._config.recipe.federated:
            sums = replace(sums, buffers="keep_local")
        return replace(
            settings, rounds=stage.end, evaluate_every=self._config.rounds, stop_at_target=False, sums=sums
        )  # fmt: skip


def build_run(world: World, config: MedicalConfig, data: MedicalData, model: Network, device: str) -> MedicalRun:
    """`MedicalRun` on every rank.

    Raises:
        AgreedError: settings that do not fit the data; on every rank.
    """
    problem: FedhpcError | None = None
    run: MedicalRun | None = None
    try:
        run = MedicalRun(world, config, data, model, device)
    except FedhpcError as error:
        problem = error
    world.agree(problem)
    assert run is not None
    return run
