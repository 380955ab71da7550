"""From a sweep's configuration to its trials in order, and what a person should know before they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedhpc import registry
from fedhpc.data.stores import Store
from fedhpc.errors import ConfigError
from fedhpc.objectives._domains import DomainObjective
from fedhpc.objectives.hparams import Value, group_of
from fedhpc.objectives.setting import Setting
from fedhpc.report.names import ALGORITHMS, in_order
from fedhpc.report.selection import Criterion, criteria
from fedhpc.sweep.building import (
    build_model,
    build_transform,
    check_hparams,
    choose_model,
    hparams_of,
    input_size,
    setup_of,
)
from fedhpc.sweep.estimate import DatasetFacts, cost, duration
from fedhpc.sweep.settings import SweepConfig
from fedhpc.sweep.trials import (
    Axes,
    SweepDataset,
    TestEnvs,
    TrialSpec,
    count_trials,
    enumerate_trials,
    needed_test_envs,
)

STEPS = 5001
_CHECKPOINT_FREQ = {"small": 100, "large": 300, "domain_net": 1000}
_MOST_REMARKS = 12

Draw = tuple[str, str, int, int]
"""What a trial's hyperparameters depend on: dataset, algorithm, hparams seed, trial seed."""


def facts_of(store: Store) -> DatasetFacts:
    """What a plan needs to know about an opened dataset."""
    manifest = store.manifest
    sizes = np.bincount(store.table.environment, minlength=len(manifest.environments))
    return DatasetFacts(
        manifest.environments, tuple(int(n) for n in sizes), manifest.height, manifest.width, manifest.channels
    )


@dataclass(frozen=True)
class Plan:
    """A sweep, ready to be run.

    Attributes:
        trials: longest first.
        criteria: that it serves, by name.
        facts: of the datasets, by name.
        costs: of each trial, by id.
        hparams: by what they depend on.
        profile: `paper` or `head`.
    """

    trials: tuple[TrialSpec, ...]
    criteria: Mapping[str, Criterion]
    facts: Mapping[str, DatasetFacts]
    costs: Mapping[str, float]
    hparams: Mapping[Draw, Mapping[str, Value]]
    profile: str

    @cached_property
    def by_id(self) -> dict[str, TrialSpec]:
        """The trials by their ids."""
        return {trial.id: trial for trial in self.trials}

    def counts(self) -> dict[str, dict[str, int]]:
        """Trials per dataset: `all`, and what each criterion needs."""
        sizes = {name: len(facts.environments) for name, facts in self.facts.items()}
        return count_trials(self.trials, self.criteria, sizes)

    def only(self, ids: Sequence[str]) -> Plan:
        """The same with some trials only.

        Raises:
            ConfigError: an id that the sweep does not have.
        """
        unknown = [i for i in ids if i not in self.by_id]
        if unknown:
            raise ConfigError(
                f"--only: the sweep has no trial {unknown[0]} (with the given configuration; ids change with it)"
            )
        chosen = set(ids)
        kept = tuple(t for t in self.trials if t.id in chosen)
        return replace(self, trials=kept)


def make_plan(config: SweepConfig, facts: Mapping[str, DatasetFacts]) -> Plan:
    """Enumerate a sweep's trials and order them, longest first.

    Args:
        config: the configuration.
        facts: of every dataset that it names.

    Raises:
        ConfigError: something in it does not fit together.
    """
    sweep = config.sweep
    for algorithm in sweep.algorithms:
        if not issubclass(registry.load("fedhpc.objectives", algorithm).OBJECTIVE, DomainObjective):
            raise ConfigError(f"sweep.algorithms has {algorithm}, which adapts models to clients and has no trials")
    check_hparams(sweep.hparams, sweep.algorithms)
    chosen = criteria(sweep.criteria)
    datasets, test_envs = [], {}
    for name in sweep.datasets:
        datasets.append(_dataset(config, name, len(facts[name].environments)))
        test_envs[name] = _test_envs(config, chosen, name, facts[name])
    shared = {
        "holdout_fraction": sweep.holdout_fraction,
        "profile": sweep.profile,
        "hparams": dict(sweep.hparams),
        "setup": setup_of(config),
    }
    draws = range(sweep.first_hparams, sweep.first_hparams + sweep.n_hparams)
    repetitions = range(sweep.first_trial, sweep.first_trial + sweep.n_trials)
    trials = list(enumerate_trials(Axes(sweep.algorithms, draws, repetitions, shared), datasets, test_envs))
    hparams = _hparams(trials)
    costs = {t.id: cost(t, int(hparams[_draw(t)]["batch_size"]), facts[t.dataset]) for t in trials}
    trials.sort(key=lambda t: -costs[t.id])  # stable: equals stay in the original's order
    return Plan(tuple(trials), chosen, dict(facts), costs, hparams, sweep.profile)


def _dataset(config: SweepConfig, name: str, num_environments: int) -> SweepDataset:
    sweep = config.sweep
    steps = sweep.steps or STEPS
    return SweepDataset(name, num_environments, steps, sweep.checkpoint_freq or _CHECKPOINT_FREQ[group_of(name)])


def _test_envs(
    config: SweepConfig, chosen: Mapping[str, Criterion], dataset: str, facts: DatasetFacts
) -> list[TestEnvs]:
    wanted, count = config.sweep.test_envs, len(facts.environments)
    if count < 2:
        raise ConfigError(f"sweep.datasets: {dataset} has a single environment; there is nothing to generalise to")
    beyond = [e for e in wanted or () if e >= count]
    if beyond:
        raise ConfigError(f"sweep.test_envs has {beyond[0]}, but {dataset} has environments 0 to {count - 1}")
    try:
        return needed_test_envs(chosen, count, wanted)
    except ConfigError as error:
        raise ConfigError(f"{error} (dataset {dataset})") from None


def _draw(trial: TrialSpec) -> Draw:
    return trial.dataset, trial.algorithm, trial.hparams_seed, trial.trial_seed


def _hparams(trials: Sequence[TrialSpec]) -> dict[Draw, dict[str, Value]]:
    """Hyperparameters of every draw; trials that differ only in their test environments share one."""
    found: dict[Draw, dict[str, Value]] = {}
    for trial in trials:
        if _draw(trial) not in found:
            found[_draw(trial)] = hparams_of(trial)
    return found


def remarks(plan: Plan) -> list[str]:
    """What a person should know before the trials run, most frequent first: ERM in disguise, no training, and so on."""
    kinds = Counter((_draw(t), len(t.test_envs), t.steps) for t in plan.trials)
    found: Counter[str] = Counter()
    for (draw, num_tested, steps), count in kinds.items():
        dataset, algorithm, *_ = draw
        values = plan.hparams[draw]
        setting = Setting(len(plan.facts[dataset].environments) - num_tested, values, plan.profile)  # type: ignore[arg-type]
        kind: type[DomainObjective] = registry.load("fedhpc.objectives", algorithm).OBJECTIVE
        for remark in kind.remarks(setting):
            found[f"{dataset}: {remark}"] += count
        if algorithm == "irm" and values["irm_penalty_anneal_iters"] >= steps:
            found[f"{dataset}: irm's warm-up is longer than the training"] += count
    notes = [f"{text} ({count} trials)" for text, count in found.most_common()]
    return [*_models(plan), *notes]


def _models(plan: Plan) -> list[str]:
    """The networks that the trials train, one line per dataset and network."""
    lines: dict[str, None] = {}
    for trial in {(t.dataset, t.hparams_seed, t.trial_seed): t for t in plan.trials}.values():
        facts = plan.facts[trial.dataset]
        height, width = input_size(trial.setup, facts.height, facts.width, facts.channels)
        choice = choose_model(trial.setup, plan.hparams[_draw(trial)], height, width)
        start = f"starting from {choice.weights}" if choice.weights else "starting fresh"
        frozen = ", batch norm frozen" if choice.freeze_bn else ""
        lines[f"{trial.dataset}: {choice.name}, {start}{frozen}"] = None
    return list(lines)


def check_transforms(plan: Plan, stores: Mapping[str, Store]) -> None:
    """Refuse a transform that does not fit a dataset's images.

    Raises:
        ConfigError: names the dataset.
    """
    for name, store in stores.items():
        setup: Mapping[str, Any] = next((t.setup for t in plan.trials if t.dataset == name), {})
        build_transform(setup, store.manifest)


def check_models(plan: Plan, stores: Mapping[str, Store], weights_file: str | None) -> None:
    """Make each network that starts from given weights once, so that a missing file is told before any trial.

    Where torchvision's weights are fetched, this leaves them in the cache for the trials.

    Raises:
        ConfigError: weights that cannot be had or do not fit.
    """
    made = set()
    for trial in plan.trials:
        facts, hparams = plan.facts[trial.dataset], plan.hparams[_draw(trial)]
        height, width = input_size(trial.setup, facts.height, facts.width, facts.channels)
        choice = choose_model(trial.setup, hparams, height, width)
        if choice.weights is not None and (trial.dataset, choice.name) not in made:
            made.add((trial.dataset, choice.name))
            shape = (facts.channels, height, width)
            build_model(choice, shape, len(stores[trial.dataset].manifest.classes), hparams, weights_file)


def plan_text(plan: Plan, left: Mapping[str, float] | None = None, num_workers: int = 1) -> str:
    """The plan for a person.

    Args:
        plan: the sweep.
        left: seconds of one worker that the open trials take, by dataset; None if that is not known.
        num_workers: ranks that would share them.
    """
    names = list(plan.criteria)
    head = ["dataset", "environments", "trials", *names]
    rows = [
        [dataset, str(len(plan.facts[dataset].environments)), *(f"{count[key]:,}" for key in ("all", *names))]
        for dataset, count in plan.counts().items()
    ]
    total = [f"{sum(c[key] for c in plan.counts().values()):,}" for key in ("all", *names)]
    lines = _columns([head, *rows, ["all", "", *total]])
    algorithms = ", ".join(in_order((t.algorithm for t in plan.trials), ALGORITHMS))
    lines += ["", f"algorithms: {algorithms}; profile {plan.profile}"]
    found = remarks(plan)
    lines += [f"- {remark}" for remark in found[:_MOST_REMARKS]]
    if len(found) > _MOST_REMARKS:
        lines.append(f"- and {len(found) - _MOST_REMARKS} more remarks on trials of no great use")
    if left is not None:
        whole = sum(left.values())
        each = ", ".join(f"{name} {duration(seconds)}" for name, seconds in left.items())
        lines += ["", f"estimate: {duration(whole)} of one worker's time ({each})"]
        if num_workers > 1:
            lines.append(f"          {duration(whole / num_workers)} on {num_workers} ranks like this one")
    return "\n".join(lines)


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join([f"{row[0]:<{widths[0]}}", *(f"{c:>{w}}" for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
