"""The configuration of a medical run: a federated run's, with a scenario in place of a partition, and a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fedhpc.config import Limits, Plugin, RunConfig, from_tree, load, plugin_name
from fedhpc.errors import ConfigError
from fedhpc.medical.stages import Schedule

SCENARIOS, RECIPES = "fedhpc.medical.scenarios", "fedhpc.medical.recipes"


@dataclass(frozen=True, kw_only=True)
class MedicalConfig(RunConfig):
    """One medical run: the YAML of `fedhpc scenario`. `rounds` are the rounds of each task."""

    rounds: Annotated[int, Limits(at_least=1), "rounds of each task"]
    partition: Annotated[Any, Plugin("fedhpc.data.partitions", "kind", "PARTITION")] = None
    scenario: Annotated[Any, Plugin(SCENARIOS, "kind", "SCENARIO", default="localized")]
    recipe: Annotated[Any, Plugin(RECIPES, "name", "RECIPE", default="fedavg")]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.partition is not None:
            raise ConfigError("partition has no place in a medical run: its scenario divides the samples")
        if self.local.steps is None:
            raise ConfigError("local.steps is required in a medical run (iterations per round, 5 in the paper)")
        if self.local.objective not in ("erm", self.recipe.objective):
            raise ConfigError(f"local.objective: recipe {self.recipe_name} brings its own ({self.recipe.objective})")
        self._check_full_gradient(f"recipe {self.recipe_name}", self.recipe.objective == "erm")
        if self.personalize.method != "none" or self.generalize.test_envs or self.local.batches == "per_environment":
            raise ConfigError("personalize, generalize and local.batches have no place in a medical run")
        if self.cohort.size is not None or self.cohort.fraction is not None:
            raise ConfigError("cohort has no place in a medical run: every client with samples of a task takes part")
        self._check_averaging()
        head = self.recipe.head_stage(self.rounds)
        if head is not None and head.first_round is not None and not 0 < head.first_round < self.rounds:
            raise ConfigError(
                f"rounds is {self.rounds}: recipe {self.recipe_name} ends each task with rounds of the classifier "
                "alone, so it needs at least 2"
            )
        own = self.recipe.own_weights and self.scenario.by_environment
        if self.recipe.classes == "environment" and not own:
            raise ConfigError(
                "recipe.classes: environment needs recipe.head: own (or recipe erm) and scenario.by_environment: true: "
                "each client belongs to one environment, and keeps its classifier"
            )
        traffic = self.algorithm.traffic
        if self.recipe.own_weights and (traffic.client_state or len(traffic.broadcast) > 1):
            raise ConfigError(
                f"algorithm.name: {self.algorithm_name} compares clients with the common model, and with recipe "
                f"{self.recipe_name} (head: {self.recipe.head}) they keep weights of their own; choose fedavg"
            )

    def _check_averaging(self) -> None:
        """Refuse an average over a valley that there are too few evaluations to find (the original never looks)."""
        rule = self.recipe.averaging
        if rule is None or rule.compat:
            return
        count = Schedule(self.rounds, rule.evaluations).count
        if count < rule.num_converge:
            raise ConfigError(
                f"recipe.evaluations gives {count} to a task of {self.rounds} rounds, and a valley is judged by "
                f"{rule.num_converge} (recipe.num_converge); raise rounds or recipe.evaluations"
            )

    @property
    def scenario_kind(self) -> str:
        """Name of the scenario plug-in."""
        return plugin_name(self.scenario)

    @property
    def recipe_name(self) -> str:
        """Name of the recipe plug-in."""
        return plugin_name(self.recipe)

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any], source: str = "configuration") -> MedicalConfig:
        """Rebuild what `to_dict` gave."""
        return from_tree(cls, tree, source)


def load_medical(path: str, overrides: Sequence[str] = ()) -> MedicalConfig:
    """Read the configuration of a medical run (see `fedhpc.config.load_config`).

    Raises:
        ConfigError: anything at all is wrong; names the file (or the command line), the key and what is allowed.
    """
    return load(MedicalConfig, path, overrides)
