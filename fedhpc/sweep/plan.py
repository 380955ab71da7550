"""From a sweep's configuration to its trials in order, and what a person should know before they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from fedhpc import registry
from fedhpc.errors import ConfigError
from fedhpc.objectives._domains import DomainObjective
from fedhpc.objectives.hparams import Value, group_of
from fedhpc.report.names import ALGORITHMS, in_order
from fedhpc.report.selection import Criterion, criteria
from fedhpc.sweep.building import (
    Draw,
    draw_of,
    hparams_of,
    shared_fields,
)
from fedhpc.sweep.estimate import DatasetFacts, cost, duration
from fedhpc.sweep.hparam_checks import check_hparams, unused_hparams
from fedhpc.sweep.remarks import find_remarks, network_lines, remark_lines, split_lines
from fedhpc.sweep.settings import EACH, SweepConfig
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
        unused: given hyperparameters that change nothing, one line each.
    """

    trials: tuple[TrialSpec, ...]
    criteria: Mapping[str, Criterion]
    facts: Mapping[str, DatasetFacts]
    costs: Mapping[str, float]
    hparams: Mapping[Draw, Mapping[str, Value]]
    profile: str
    unused: tuple[str, ...] = ()

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
    check_hparams(sweep.hparams, sweep.algorithms)
    for algorithm in sweep.algorithms:
        _check_objective(algorithm, sweep.hparams)
    chosen = criteria(sweep.criteria)
    datasets, test_envs = [], {}
    for name in sweep.roots:
        datasets.append(dataset_of(config, name, len(facts[name].environments)))
        test_envs[name] = _test_envs(config, chosen, name, len(facts[name].environments))
    shared = shared_fields(config)
    draws = range(sweep.first_hparams, sweep.first_hparams + sweep.n_hparams)
    repetitions = range(sweep.first_trial, sweep.first_trial + sweep.n_trials)
    trials = list(enumerate_trials(Axes(sweep.algorithms, draws, repetitions, shared), datasets, test_envs))
    hparams = _hparams(trials)
    costs = {t.id: cost(t, int(hparams[draw_of(t)]["batch_size"]), facts[t.dataset]) for t in trials}
    trials.sort(key=lambda t: -costs[t.id])  # stable: equals stay in the original's order
    unused = tuple(unused_hparams(config, facts))
    return Plan(tuple(trials), chosen, dict(facts), costs, hparams, sweep.profile, unused)


def _check_objective(algorithm: str, given: Mapping[str, Value]) -> None:
    kind = registry.load("fedhpc.objectives", algorithm).OBJECTIVE
    if not issubclass(kind, DomainObjective):
        raise ConfigError(f"sweep.algorithms has {algorithm}, which adapts models to clients and has no trials")
    if given.get("batch_size", kind.min_rows) < kind.min_rows:
        raise ConfigError(
            f"sweep.hparams.batch_size must be at least {kind.min_rows} for {algorithm}, got {given['batch_size']}"
        )


def dataset_of(config: SweepConfig, name: str, num_environments: int) -> SweepDataset:
    """How long the trials of a dataset train."""
    sweep = config.sweep
    steps = sweep.steps or STEPS
    return SweepDataset(name, num_environments, steps, sweep.checkpoint_freq or _CHECKPOINT_FREQ[group_of(name)])


def num_trials(config: SweepConfig, num_environments: Mapping[str, int]) -> int:
    """How many trials a configuration has, without making them.

    Args:
        config: the configuration.
        num_environments: of each of its datasets.

    Raises:
        ConfigError: something in it does not fit together.
    """
    sweep, chosen = config.sweep, criteria(config.sweep.criteria)
    sets = sum(len(_test_envs(config, chosen, name, num_environments[name])) for name in sweep.roots)
    return sets * len(sweep.algorithms) * sweep.n_hparams * sweep.n_trials


def _test_envs(config: SweepConfig, chosen: Mapping[str, Criterion], dataset: str, count: int) -> list[TestEnvs]:
    wanted, sets = _split_wanted(config.sweep.test_envs)
    if count < 2:
        raise ConfigError(f"sweep.datasets: {dataset} has a single environment; there is nothing to generalise to")
    beyond = [e for e in [*(wanted or ()), *(e for envs in sets for e in envs)] if e >= count]
    if beyond:
        raise ConfigError(f"sweep.test_envs has {beyond[0]}, but {dataset} has environments 0 to {count - 1}")
    if any(len(envs) >= count for envs in sets):
        raise ConfigError(f"sweep.test_envs holds out all environments of {dataset}: nothing would be left to train on")
    try:
        return sorted({*needed_test_envs(chosen, count, wanted), *sets})
    except ConfigError as error:
        raise ConfigError(f"{error} (dataset {dataset})") from None


def _split_wanted(
    test_envs: Sequence[int | str | TestEnvs] | None,
) -> tuple[list[int] | None, list[TestEnvs]]:
    """Environments to be tested on under the criteria (None: all), and sets that are held out as they are."""
    sets = [tuple(sorted(entry)) for entry in test_envs or () if isinstance(entry, tuple)]
    if test_envs is None or EACH in test_envs:
        return None, sets
    return [entry for entry in test_envs if isinstance(entry, int)], sets


def _hparams(trials: Sequence[TrialSpec]) -> dict[Draw, dict[str, Value]]:
    """Hyperparameters of every draw; trials that differ only in their test environments share one."""
    found: dict[Draw, dict[str, Value]] = {}
    for trial in trials:
        if draw_of(trial) not in found:
            found[draw_of(trial)] = hparams_of(trial)
    return found


def remarks(plan: Plan) -> tuple[list[str], list[str]]:
    """What a person should know before the trials run: first what must be read, then what may be cut."""
    sizes = {name: len(facts.environments) for name, facts in plan.facts.items()}
    found = find_remarks(plan.trials, sizes, plan.hparams)
    serious = remark_lines(r for r in found if r.is_serious)
    networks = network_lines(plan.trials, plan.facts, plan.hparams)
    lesser = remark_lines(r for r in found if not r.is_serious)
    return [*serious, *split_lines(plan.trials, plan.facts), *networks], [*plan.unused, *lesser]


def remark_text(plan: Plan) -> str:
    """The same as lines of text, of which those that may be cut are not too many."""
    first, rest = remarks(plan)
    lines = [f"- {remark}" for remark in [*first, *rest[:_MOST_REMARKS]]]
    if len(rest) > _MOST_REMARKS:
        lines.append(f"- and {len(rest) - _MOST_REMARKS} more remarks of less weight")
    return "\n".join(lines)


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
    lines.append(remark_text(plan))
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
