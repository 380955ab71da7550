"""Domain generalization in a federation: what is held out, which environments clients have, and what they train."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from fedhpc import registry
from fedhpc.config import RunConfig
from fedhpc.data.partition import HOLDOUT, TEST, TRAIN, Partition
from fedhpc.data.splits import EnvironmentSplit, split_table
from fedhpc.data.table import SampleTable
from fedhpc.data.units import units_of
from fedhpc.errors import ConfigError, nearest
from fedhpc.report import trial_files as records

if TYPE_CHECKING:
    from fedhpc.commands._federation import OpenedData
    from fedhpc.data.environment_batches import ClientEnvironmentBatches
    from fedhpc.federated.environments import EnvironmentExam, Part
    from fedhpc.objectives._domains import DomainObjective
    from fedhpc.objectives.base import Objective
    from fedhpc.objectives.setting import Setting

_NAMED_CLIENTS = 8


def split_of(config: RunConfig, table: SampleTable) -> list[EnvironmentSplit]:
    """The split of every environment, as in a sweep's trial whose seed is the run's, but where clients get whole units
    (patients) by whole units: in the trial's, one can be in both parts.

    Raises:
        ConfigError: an environment that does not exist, or none would be left to train on.
    """
    g = config.generalize
    unknown = [e for e in g.test_envs if e >= table.num_environments]
    if unknown or len(g.test_envs) >= table.num_environments:
        raise ConfigError(
            f"generalize.test_envs is {list(g.test_envs)}; the dataset has the environments 0 to "
            f"{table.num_environments - 1} ({', '.join(table.environment_names)}), and at least one must be left"
        )
    units = _units(config, table)
    return split_table(table, config.seed, g.test_envs, g.holdout_fraction, stratified=g.stratified, units=units)


def _units(config: RunConfig, table: SampleTable) -> np.ndarray | None:
    """Unit of every sample, int64, where clients get whole ones."""
    return units_of(table, getattr(config.partition, "unit", ""), "partition.unit")


def with_split(config: RunConfig, table: SampleTable) -> SampleTable:
    """The table as partitions are to see it: the smaller part of a training environment is what clients are tested on,
    and a test environment is nobody's.
    """
    if not config.generalize.test_envs:
        return table
    split = np.empty_like(table.split)
    for environment, parts in enumerate(split_of(config, table)):
        tested = environment in config.generalize.test_envs
        split[parts.inside] = HOLDOUT if tested else TRAIN
        split[parts.outside] = HOLDOUT if tested else TEST
    return dataclasses.replace(table, split=split)


def training_environments(config: RunConfig, num_environments: int) -> list[int]:
    """Numbers of the environments that are not held out."""
    return [e for e in range(num_environments) if e not in config.generalize.test_envs]


def objective_class(config: RunConfig) -> type[Objective]:
    """The class of the local objective: what personalisation needs, else `local.objective`."""
    method = config.personalize.method
    name = config.local.objective if method == "none" else method
    kind: type[Objective] = registry.load("fedhpc.objectives", name).OBJECTIVE
    return kind


def per_environment(config: RunConfig) -> bool:
    """Whether a local step takes one minibatch of each environment of the client."""
    choice = config.local.batches
    return objective_class(config).by_environment if choice == "auto" else choice == "per_environment"


def setting_of(config: RunConfig, num_environments: int) -> Setting:
    """What a domain objective is built for.

    Raises:
        ConfigError: `local.hparams` has a name that the objective has not.
    """
    from fedhpc.objectives.hparams import COMMON
    from fedhpc.objectives.setting import Setting

    local, space = config.local, objective_class(config).space
    for name in local.hparams:
        if name not in space:
            known = ", ".join(space) or "none"
            raise ConfigError(
                f"local.hparams.{name}: objective {local.objective} has no such hyperparameter"
                f"{nearest(name, [*space, *COMMON])}; there are: {known}"
            )
    shared = {"lr": local.lr, "weight_decay": local.weight_decay}
    number = len(training_environments(config, num_environments))
    return Setting(number, {**shared, **local.hparams}, local.profile)


def check_environments(config: RunConfig, table: SampleTable, partition: Partition) -> Partition:
    """Refuse clients with too few environments for the objective; returns the partition with what a user should know.

    Raises:
        ConfigError: names the clients and their numbers.
    """
    from fedhpc.objectives._domains import DomainObjective

    kind, name = objective_class(config), config.local.objective
    if not issubclass(kind, DomainObjective):
        if per_environment(config):
            raise ConfigError(f"local.batches: per_environment does not go with {config.personalize.method}")
        if config.local.hparams:
            raise ConfigError(f"local.hparams: objective {name} has none")
        return partition
    setting = setting_of(config, table.num_environments)
    if not per_environment(config):
        return partition
    sizes = [np.unique(table.environment[rows], return_counts=True)[1] for rows in partition.train]
    few = [f"client {c} has {len(n)}" for c, n in enumerate(sizes) if len(n) < kind.min_environments]
    if few:
        raise ConfigError(
            f"local.objective {name} needs {kind.min_environments} environments per client: {_named(few)}; choose "
            "another partition (by_environment has environments_per_client)"
        )
    small = [
        f"client {c} has {n.min()}"
        for c, n in enumerate(sizes)
        if min(n.min(), config.local.batch_size) < kind.min_rows
    ]
    if small:
        raise ConfigError(
            f"local.objective {name} needs {kind.min_rows} samples of each environment in a step: {_named(small)} "
            f"with local.batch_size {config.local.batch_size}"
        )
    notes = [*_notes(kind, setting, sizes), *_warm_up_notes(config, kind, setting, sizes)]
    return dataclasses.replace(partition, notes=(*partition.notes, *notes))


def _notes(kind: type[Objective], setting: Setting, sizes: list[np.ndarray]) -> list[str]:
    """The objective's remarks on the numbers of environments that clients have."""
    notes = []
    numbers = [len(n) for n in sizes]
    for number in sorted(set(numbers)):
        here = dataclasses.replace(setting, num_environments=number)
        share = f"{numbers.count(number)} of {len(numbers)} clients: "
        notes += [share + remark for remark in kind.remarks(here)]  # type: ignore[attr-defined]
    return notes


def _warm_up_notes(
    config: RunConfig, kind: type[DomainObjective], setting: Setting, sizes: list[np.ndarray]
) -> list[str]:
    """Whether a warm-up that begins anew in each local training ever ends."""
    name, local = "irm_penalty_anneal_iters", config.local
    if name not in kind.space or not sizes:
        return []
    longest = max(int(n.max()) for n in sizes)
    steps = local.steps if local.steps is not None else (local.epochs or 0) * -(-longest // local.batch_size)
    warm_up = kind.hparam(setting, name)
    if warm_up < steps:
        return []
    return [
        f"{kind.name()}: the penalty keeps weight 1 as its warm-up of {warm_up} steps begins anew in each local "
        f"training, which has at most {steps}; local.hparams.{name} sets it"
    ]


def _named(found: list[str]) -> str:
    more = f" and {len(found) - _NAMED_CLIENTS} more" if len(found) > _NAMED_CLIENTS else ""
    return f"{', '.join(found[:_NAMED_CLIENTS])}{more}"


def environment_batches(config: RunConfig, data: OpenedData) -> ClientEnvironmentBatches:
    """One minibatch per environment; environments count among those that are trained on."""
    from fedhpc.data.environment_batches import ClientEnvironmentBatches

    table, local = data.store.table, config.local
    place = np.full(table.num_environments, -1)
    training = training_environments(config, table.num_environments)
    place[training] = np.arange(len(training))
    owned = [place[table.environment[rows]] for rows in data.partition.train]
    return ClientEnvironmentBatches(config.seed, local.batch_size, owned, local.epochs, local.steps)


def build_exam(config: RunConfig, data: OpenedData, device: str) -> EnvironmentExam | None:
    """What the criteria of model selection need to know of every evaluated model; None if nothing is held out."""
    import torch

    from fedhpc.data.samples import Samples
    from fedhpc.federated.environments import EnvironmentExam

    if not config.generalize.test_envs:
        return None
    store = data.store

    def read(indices: np.ndarray) -> Samples:
        pixels = torch.from_numpy(store.images(indices))
        return Samples(pixels.to(device), torch.from_numpy(store.table.labels[indices]).to(device))

    return EnvironmentExam(exam_parts(config, store.table, data.partition), read, config.evaluate.batch_size)


def exam_parts(config: RunConfig, table: SampleTable, partition: Partition) -> list[Part]:
    """What is asked of a model; where units are whole, none validates that clients train on in another environment."""
    from fedhpc.federated.environments import Part

    units, parts = _units(config, table), []
    for environment, split in enumerate(split_of(config, table)):
        if environment in config.generalize.test_envs:
            parts.append(Part(records.TEST, environment, split.inside))
            parts.append(Part(records.ORACLE, environment, split.outside))
            continue
        outside = split.outside
        if units is not None:
            outside = outside[~np.isin(units[outside], units[np.concatenate(partition.train)])]
        parts.append(Part(records.VALIDATION, environment, outside))
    return parts
