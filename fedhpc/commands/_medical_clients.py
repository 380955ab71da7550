"""What clients of a medical run carry and do beside the federated rule, from its configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhpc.medical.averaging import AveragedModel
from fedhpc.medical.carried import HeadSteps, KeptOptimizer, OwnClasses, OwnWeights, backbone_of
from fedhpc.medical.longtail import head_names
from fedhpc.medical.stages import Schedule, Stage

if TYPE_CHECKING:
    from fedhpc.commands._medical import MedicalData
    from fedhpc.medical.config import MedicalConfig
    from fedhpc.medical.recipes._base import Setting
    from fedhpc.medical.task_data import TaskData
    from fedhpc.models.base import Network
    from fedhpc.train.extension import ClientExtension
    from fedhpc.train.local import LocalTrainer


def known_classes(config: MedicalConfig, data: MedicalData) -> np.ndarray | None:
    """Classes of every client's environment, bool [clients, classes]; None where clients have all."""
    return None if config.recipe.classes == "all" else environment_classes(data)


def environment_classes(data: MedicalData) -> np.ndarray:
    """Classes of every client's environment, bool [clients, classes], where each client belongs to one."""
    table = data.store.table
    known = np.zeros((data.timeline.num_clients, table.num_classes), dtype=bool)
    for client, tasks in enumerate(data.timeline.train):
        own = table.environment == table.environment[np.concatenate(tasks)[0]]
        known[client, np.unique(table.labels[own])] = True
    return known


@dataclass(frozen=True)
class Extras:
    """Builds the extensions of a run."""

    config: MedicalConfig
    data: MedicalData
    model: Network
    trainer: LocalTrainer
    stages: Sequence[Stage]
    setting: Setting

    def extensions(self, any_task: TaskData) -> list[ClientExtension]:
        """In the order in which they act."""
        recipe, vector = self.config.recipe, self.trainer.vector
        found: list[Any] = []
        known = known_classes(self.config, self.data)
        if known is not None:
            found.append(OwnClasses(self.model, known))
        if recipe.own_weights:
            resets = {stage.first for stage in self.stages if stage.reset}
            names = head_names(self.model) if recipe.federated else None
            found.append(OwnWeights(vector, names, resets.__contains__))
        kept = self._kept_optimizer()
        if kept is not None:
            found.append(kept)
        head = recipe.head_stage(self.config.rounds)
        if head is not None and head.first_round is None:
            backbone = backbone_of(self.model, vector)
            found.append(HeadSteps(self.trainer.solver, backbone, self.setting.steps, kept))
        if recipe.averaging is not None:
            found.append(self._averaged(any_task))
        return found

    def _kept_optimizer(self) -> KeptOptimizer | None:
        local = self.config.local
        if self.config.recipe.momentum != "keep" or not (local.optimizer == "adam" or local.momentum):
            return None
        cuts = {s.first for s in self.stages} if any(s.head for s in self.stages) else set()
        return KeptOptimizer(self.trainer.vector, self.trainer.solver, local.optimizer, cuts.__contains__)

    def _averaged(self, any_task: TaskData) -> AveragedModel:
        config, recipe = self.config, self.config.recipe
        return AveragedModel(
            self.trainer,
            recipe.averaging,
            Schedule(config.rounds, recipe.averaging.evaluations),
            any_task.validation_of,
            any_task.train_of,
            recipe.passes(self.setting),
            config.evaluate.batch_size,
        )
