"""A sweep's configuration and plan on disk: they may grow but not change, and neither may the data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fedhpc
from fedhpc.config import to_yaml
from fedhpc.errors import ConfigError
from fedhpc.report.results import PlannedTrial
from fedhpc.report.trial_files import CONFIG, PLAN, is_sweep, plan_text, read_plan
from fedhpc.runs.rundir import BATCH_FILES, write_atomically
from fedhpc.sweep.building import shared_fields
from fedhpc.sweep.plan import Plan, dataset_of
from fedhpc.sweep.remarks import find_remarks, remark_lines
from fedhpc.sweep.settings import SweepConfig, union
from fedhpc.sweep.stored import refuse_change
from fedhpc.sweep.trials import TrialSpec

LOG = "log"
_DATA, _REMARKS = "data", "remarks"


@dataclass(frozen=True)
class DataFacts:
    """What must stay as it is while a sweep lasts.

    Attributes:
        digest: `fedhpc.data.fingerprint` of the dataset.
        num_samples: of the dataset.
    """

    digest: str
    num_samples: int


def write_sweep(folder: Path, config: SweepConfig, plan: Plan, data: Mapping[str, DataFacts]) -> None:
    """Write configuration and plan; a sweep that is there already may grow but not change.

    Args:
        folder: the sweep's.
        config: as it was given.
        plan: made from it.
        data: facts of its datasets, by name.

    Raises:
        ConfigError: the folder holds something else, a sweep with other settings, or one on other data.
        OSError: it cannot be written.
    """
    planned = {t.id: t.planned() for t in plan.trials}
    environments = {name: facts.environments for name, facts in plan.facts.items()}
    names, known = list(plan.criteria), {name: vars(facts) for name, facts in data.items()}
    whole = config
    if is_sweep(folder):
        whole = _grown(refuse_change(folder, config), config)
        before, known_before = read_plan(folder), _stored(folder).get(_DATA, {})
        _refuse_other_data(folder, known_before, data)
        planned = {**{t.id: t for t in before.planned}, **planned}
        environments = {**(before.environments or {}), **environments}
        names = list(dict.fromkeys([*before.criteria, *names]))
        known = {**known_before, **known}
    elif folder.exists() and any(entry.name not in BATCH_FILES for entry in folder.iterdir()):
        raise ConfigError(f"{folder}: is not empty and holds no sweep; choose another --out")
    (folder / LOG).mkdir(parents=True, exist_ok=True)
    about = {"planned with": fedhpc.__version__, "profile": plan.profile}
    write_atomically(folder / CONFIG, to_yaml(whole.to_dict()))
    numbers = {name: len(labels) for name, labels in environments.items()}
    found = find_remarks(_specs(whole, plan, planned.values(), numbers), numbers, plan.hparams)
    more = {_DATA: known, _REMARKS: remark_lines(found)}
    write_atomically(folder / PLAN, plan_text(_in_order(planned.values()), environments, names, about, more))


def _stored(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / PLAN).read_text(encoding="utf-8"))
    return found


def _grown(old: SweepConfig, new: SweepConfig) -> SweepConfig:
    """The union of two configurations; a dataset keeps its folder as long as that is there (jobs stage copies)."""
    whole = union(old, new)
    kept = {name: root for name, root in old.sweep.roots.items() if root is None or Path(root).is_dir()}
    return replace(whole, sweep=replace(whole.sweep, datasets={**whole.sweep.roots, **kept}))


def _refuse_other_data(folder: Path, before: Mapping[str, Mapping[str, Any]], now: Mapping[str, DataFacts]) -> None:
    """Trials on different data must not be averaged."""
    for name, facts in now.items():
        if name in before and before[name] != vars(facts):
            samples = f"{before[name].get('num_samples', 0):,} samples there, {facts.num_samples:,} now"
            raise ConfigError(
                f"sweep.datasets.{name}: is not the data that the sweep in {folder} began with ({samples}, digest "
                f"{str(before[name].get('digest'))[:12]} there, {facts.digest[:12]} now); give the folder with the "
                f"former data, or choose another --out"
            )


def _specs(
    config: SweepConfig, plan: Plan, planned: Iterable[PlannedTrial], num_environments: Mapping[str, int]
) -> Iterable[TrialSpec]:
    """The full description of every planned trial, also of those that the present plan does not have."""
    shared = shared_fields(config)
    for trial in planned:
        if trial.id in plan.by_id:
            yield plan.by_id[trial.id]
        else:
            dataset = dataset_of(config, trial.dataset, num_environments[trial.dataset])
            yield TrialSpec(
                trial.dataset, trial.algorithm, trial.test_envs, trial.hparams_seed, trial.trial_seed,
                dataset.steps, dataset.checkpoint_freq, **shared,
            )  # fmt: skip


def _in_order(planned: Iterable[PlannedTrial]) -> Sequence[PlannedTrial]:
    return sorted(planned, key=lambda t: (t.dataset, t.algorithm, t.test_envs, t.trial_seed, t.hparams_seed))
