"""From a configuration to a federation ready to run: data, partition, model, trainer, engine."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fedhpc import registry
from fedhpc.comm.world import World
from fedhpc.commands import _domains
from fedhpc.config import RunConfig
from fedhpc.data.fingerprint import fingerprint
from fedhpc.data.partition import Partition
from fedhpc.data.stores import MemoryStore, Store, attach_store, open_store
from fedhpc.data.table import SampleTable
from fedhpc.errors import ConfigError, FedhpcError
from fedhpc.seeding import derive

if TYPE_CHECKING:
    import torch

    from fedhpc.data.clients import PartitionedData
    from fedhpc.data.transforms import Transform
    from fedhpc.federated.cohorts import CohortPlan
    from fedhpc.federated.personalize import Personalizer
    from fedhpc.federated.state import EngineSettings
    from fedhpc.models.base import Network
    from fedhpc.objectives.base import Objective
    from fedhpc.tensors.vector import ParameterVector
    from fedhpc.train.local import LocalTrainer


T = TypeVar("T")


@dataclass(frozen=True)
class OpenedData:
    """A dataset as every rank has it, and who owns what; `digest` tells it from others of its name, on root only."""

    store: Store
    partition: Partition
    digest: str = ""


def open_data(world: World, config: RunConfig) -> OpenedData:
    """Open the dataset, and divide it over the clients; see `open_together`."""

    def divided(store: Store) -> Partition:
        table, partition = divide(config, store)
        return _domains.check_environments(config, table, partition)

    store, partition, digest = open_together(world, config, divided)
    return OpenedData(store, _share_partition(world, partition), digest)


def open_together(world: World, config: RunConfig, divide: Callable[[Store], T]) -> tuple[Store, T | None, str]:
    """Open the dataset on root, see there whether it can be divided, and tell the other ranks what it holds.

    Returns:
        The dataset as this rank has it, and, on root only, its division and its digest.

    Raises:
        AgreedError: damaged data, or a division that is not possible; on every rank.
    """
    root = Path(config.data.root) if config.data.root else None
    problem: FedhpcError | None = None
    opened: tuple[Store, T, str] | None = None
    if world.is_root:
        try:
            store = open_store(config.data.dataset, root)
            opened = store, divide(store), fingerprint(store)
        except FedhpcError as error:
            problem = error
    world.agree(problem)
    description = world.share(opened[0].describe() if opened else None)
    store = opened[0] if opened else attach_store(root, description or {})
    if config.data.memory == "copy":
        store = MemoryStore(store.manifest, store.table, store.images(np.arange(store.manifest.num_samples)))
    return store, opened[1] if opened else None, opened[2] if opened else ""


def divide(config: RunConfig, store: Store) -> tuple[SampleTable, Partition]:
    """The table as the partition is to see it, and who owns what, or a `ConfigError`; without torch."""
    table = _domains.with_split(config, store.table)
    partition = config.partition.split(table, config.seed)
    check_clients(config, partition)
    return table, partition


def _share_partition(world: World, partition: Partition | None) -> Partition:
    """Send root's partition to all ranks as buffers."""
    import torch

    arrays = partition.to_arrays() if partition else {}
    sizes: dict[str, int] = world.share({name: len(values) for name, values in arrays.items()})
    received = {}
    for name, size in sizes.items():
        flat = torch.from_numpy(arrays[name]) if partition else torch.empty(size, dtype=torch.int64)
        world.broadcast_(flat)
        received[name] = flat.numpy().astype(np.int64, copy=False)
    return partition or Partition.from_arrays(received)


def build_model(world: World, config: RunConfig, store: Store, device: str) -> tuple[Network, list[str]]:
    """Make the same initial model on every rank; only root reads a weights file. Returns it with notes for the user.

    Raises:
        AgreedError: the model does not fit the data, or the weights do not fit the model.
    """
    import torch

    from fedhpc.models.base import ModelOptions
    from fedhpc.models.weights import load_weights

    manifest = store.manifest
    options = ModelOptions(tuple(config.model.hidden), config.model.dropout, config.model.freeze_bn)
    notes: list[str] = []
    problem: FedhpcError | None = None
    model: Network | None = None
    try:
        torch.manual_seed(derive(config.seed, "init") % 2**63)
        shape = (manifest.channels, manifest.height, manifest.width)
        model = registry.load("fedhpc.models", config.model.name).MODEL(shape, len(manifest.classes), options)
        if config.model.weights and world.is_root:
            notes.append(load_weights(model, config.model.weights))
    except FedhpcError as error:
        problem = error
    world.agree(problem)
    assert model is not None
    model.to(dtype=getattr(torch, config.model.dtype))
    for tensor in (*model.parameters(), *model.buffers()):
        copy = tensor.data.contiguous()
        world.broadcast_(copy)
        tensor.data.copy_(copy)
    return model.to(device), notes


def client_data(data: OpenedData, device: str) -> PartitionedData:
    """A rank's access to its clients' samples."""
    import torch

    from fedhpc.data.clients import PartitionedData

    return PartitionedData(data.store, data.store.table.labels, data.partition, torch.device(device))


def build_transform(config: RunConfig, store: Store) -> Transform:
    """The pixels' way to model input."""
    import torch

    from fedhpc.data.transforms import Transform

    t = config.data.transform
    channels = store.manifest.channels
    mean, std = t.mean, t.std
    if mean is not None or std is not None:
        mean, std = mean or (0.0,) * channels, std or (1.0,) * channels
        if len(mean) != channels or len(std) != channels:
            raise ConfigError(
                f"data.transform.mean and std have {len(mean)} and {len(std)} numbers, "
                f"the images have {channels} channels"
            )
    return Transform(store.manifest.pixel_max, mean, std, t.flip, t.crop_pad, getattr(torch, config.model.dtype))


def build_training(config: RunConfig, model: Network, data: OpenedData) -> tuple[LocalTrainer, CohortPlan]:
    """What trains on this rank, and who takes part.

    Raises:
        ConfigError: they do not fit the data.
    """
    from fedhpc.federated.cohorts import SampledCohorts, cohort_size

    num_clients, cohort = data.partition.num_clients, config.cohort
    cohorts = SampledCohorts(num_clients, cohort_size(num_clients, cohort.size, cohort.fraction), config.seed)
    return build_trainer(config, model, build_transform(config, data.store), data), cohorts


def build_trainer(config: RunConfig, model: Network, transform: Transform, data: OpenedData) -> LocalTrainer:
    """Model, objective, solver and batches of one rank."""
    from fedhpc.data.batches import BatchPlan, ShuffledBatches, SupportQueryBatches
    from fedhpc.tensors.vector import ParameterVector
    from fedhpc.train.local import LocalSettings, LocalTrainer
    from fedhpc.train.solver import LocalSolver

    local = config.local
    vector: ParameterVector = ParameterVector(model)
    objective = _objective(config, model, vector, data.store.table.num_environments)
    solver = LocalSolver(vector, objective, _optimizer(config), local.clip)
    settings = LocalSettings(config.seed, local.lr, local.lr_decay, local.weight_decay)
    if _domains.per_environment(config):
        plan = _domains.environment_batches(config, data)
        return LocalTrainer(vector, objective, solver, transform, plan, settings, plan.environments)
    kind = SupportQueryBatches if objective.minibatches_per_step == 2 else ShuffledBatches
    batches: BatchPlan = kind(config.seed, local.batch_size, local.epochs, local.steps)
    return LocalTrainer(vector, objective, solver, transform, batches, settings)


def _objective(config: RunConfig, model: Network, vector: ParameterVector, num_environments: int) -> Objective:
    """The local objective: what personalisation needs, else `local.objective`; the same on every rank."""
    import torch

    from fedhpc.objectives._domains import DomainObjective

    personal, kind = config.personalize, _domains.objective_class(config)
    options: dict[str, Any] = {}
    if issubclass(kind, DomainObjective):
        options = {"setting": _domains.setting_of(config, num_environments)}
        torch.manual_seed(derive(config.seed, "objective") % 2**63)  # a discriminator's first weights
    elif personal.method == "maml":
        options = {key: getattr(personal, key) for key in ("inner_lr", "inner_steps", "order", "delta")}
        options["weight_decay"] = config.local.weight_decay
    return kind(model, vector, **options)


def build_personalizer(config: RunConfig, num_classes: int) -> Personalizer | None:
    """How the evaluated model is adapted to each client; None evaluates it as it is."""
    from fedhpc.federated.personalize import AdaptByGradient, NearestPrototype

    personal, batch = config.personalize, config.evaluate.batch_size
    if personal.method == "maml":
        return AdaptByGradient(personal.inner_lr, personal.inner_steps, config.local.clip, batch)
    return NearestPrototype(num_classes, batch) if personal.method == "proto" else None


def check_clients(config: RunConfig, partition: Partition) -> None:
    """Refuse clients that are too small for what they are to do.

    Raises:
        ConfigError: names the clients and their sizes.
    """
    if config.personalize.method == "none":
        return
    small = [(client, len(rows)) for client, rows in enumerate(partition.train) if len(rows) < 2]
    if small:
        shown = ", ".join(f"client {c} has {n}" for c, n in small[:8])
        raise ConfigError(
            f"personalize.method {config.personalize.method} cuts a client's samples into support and query and needs "
            f"at least 2: {shown}{f' and {len(small) - 8} more' if len(small) > 8 else ''}"
        )


def _optimizer(config: RunConfig) -> Callable[..., torch.optim.Optimizer]:
    """The optimizer's factory; its learning rate is set each round."""
    import torch

    from fedhpc.tensors.optimizers import light

    local = config.local
    if local.optimizer == "adam":
        return functools.partial(light(torch.optim.Adam), lr=local.lr, weight_decay=local.weight_decay)
    return functools.partial(
        light(torch.optim.SGD), lr=local.lr, momentum=local.momentum, weight_decay=local.weight_decay
    )


def engine_settings(config: RunConfig) -> EngineSettings:
    """The part of the configuration that the round loop takes."""
    from fedhpc.federated.host import SumSettings
    from fedhpc.federated.state import EngineSettings

    aggregation, evaluate = config.aggregation, config.evaluate
    exact = aggregation.dtype == "float64"
    return EngineSettings(
        rounds=config.rounds,
        evaluate_every=evaluate.every,
        evaluated_model=evaluate.model,
        target=evaluate.target_accuracy,
        stop_at_target=evaluate.stop_at_target,
        evaluate_batch=evaluate.batch_size,
        on_divergence=config.on_divergence,
        checkpoint_every=config.checkpoint.every,
        root_hosts=config.server.hosts_clients,
        balanced=config.placement == "balanced",
        state_budget=config.device.client_state_gib * 2**30,
        sums=SumSettings(
            aggregation.grid_bits if exact else None,
            aggregation.buffer_grid_bits if exact else None,
            aggregation.buffers,
        ),
    )


def partition_report(data: OpenedData) -> dict[str, Any]:
    """Who owns what, for partition.json."""
    return {
        "data": data.digest,
        "environments": list(data.store.manifest.environments),
        "clients": data.partition.counts(data.store.table),
        "unused": data.partition.unused,
        "notes": list(data.partition.notes),
    }
