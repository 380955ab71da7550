"""A sweep's configuration and plan on disk: they may grow but not change, and neither may the data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import fedhpc
from fedhpc.config import to_yaml
from fedhpc.errors import ConfigError
from fedhpc.report.results import PlannedTrial
from fedhpc.report.trial_files import CONFIG, PLAN, SETTINGS, WHOLE, is_sweep, plan_text, read_plan
from fedhpc.runs.rundir import BATCH_FILES, write_atomically
from fedhpc.sweep.building import shared_fields
from fedhpc.sweep.lock import locked
from fedhpc.sweep.plan import Plan, dataset_of, num_trials
from fedhpc.sweep.remarks import find_remarks, remark_lines, split_lines
from fedhpc.sweep.settings import SweepConfig, union, unusual
from fedhpc.sweep.stored import refuse_change, stored_config
from fedhpc.sweep.trials import TrialSpec

LOG = "log"
_LOCK = ".planning"
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

    Jobs that do so at once wait for each other; one that adds nothing writes nothing, and waits for nobody.

    Args:
        folder: the sweep's.
        config: as it was given.
        plan: made from it.
        data: facts of its datasets, by name.

    Raises:
        ConfigError: the folder holds something else, a sweep with other settings, or one on other data.
        OSError: it cannot be written.
    """
    foreign = folder.exists() and any(not _is_ours(entry.name) for entry in folder.iterdir())
    if is_sweep(folder):
        before = _stored(folder)
        if before == _grown(folder, before, config, plan, data):
            return
    elif foreign:
        raise ConfigError(f"{folder}: is not empty and holds no sweep; choose another --out")
    (folder / LOG).mkdir(parents=True, exist_ok=True)
    with locked(folder / _LOCK):
        _write(folder, _grown(folder, _stored(folder), config, plan, data), plan)


def _is_ours(name: str) -> bool:
    """Whether a job that began a sweep may have left such an entry, before there is a plan."""
    return name in (*BATCH_FILES, CONFIG) or name.startswith((_LOCK, f".{CONFIG}.", f".{PLAN}."))


@dataclass(frozen=True)
class _Content:
    """What the two files say.

    Attributes:
        config: None before there is any.
        planned: by id.
        environments: their names, by dataset.
        criteria: names.
        data: `DataFacts` as plain values, by dataset.
    """

    config: SweepConfig | None = None
    planned: Mapping[str, PlannedTrial] = field(default_factory=dict)
    environments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    criteria: tuple[str, ...] = ()
    data: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def _stored(folder: Path) -> _Content:
    """What a folder has; a configuration alone if a job was killed before it could write the plan."""
    config = stored_config(folder) if is_sweep(folder) or (folder / CONFIG).exists() else None
    if not is_sweep(folder):
        return _Content(config)
    plan = read_plan(folder)
    known = json.loads((folder / PLAN).read_text(encoding="utf-8")).get(_DATA, {})
    return _Content(config, {t.id: t for t in plan.planned}, plan.environments or {}, plan.criteria, known)


def _grown(folder: Path, before: _Content, config: SweepConfig, plan: Plan, data: Mapping[str, DataFacts]) -> _Content:
    """The same with what a job asks for."""
    if before.config is not None:
        config = _union(refuse_change(folder, config), config)
    _refuse_other_data(folder, before.data, data)
    return _Content(
        config,
        {**before.planned, **{t.id: t.planned() for t in plan.trials}},
        {**before.environments, **{name: tuple(facts.environments) for name, facts in plan.facts.items()}},
        tuple(dict.fromkeys([*before.criteria, *plan.criteria])),
        {**before.data, **{name: vars(facts) for name, facts in data.items()}},
    )


def _write(folder: Path, content: _Content, plan: Plan) -> None:
    """Both files, one right after the other: what takes long comes before."""
    assert content.config is not None
    numbers = {name: len(labels) for name, labels in content.environments.items()}
    found = find_remarks(_specs(content.config, plan, content.planned.values(), numbers), numbers, plan.hparams)
    settings = ", ".join(f"{key} {value}" for key, value in unusual(content.config).items())
    about = {"planned with": fedhpc.__version__, "profile": plan.profile, SETTINGS: settings or "defaults"}
    complete = all(name in numbers for name in content.config.sweep.roots)
    whole = complete and len(content.planned) == num_trials(content.config, numbers)
    more = {WHOLE: whole, _DATA: content.data, _REMARKS: [*remark_lines(found), *split_lines(plan.trials, plan.facts)]}
    planned = _in_order(content.planned.values())
    texts = to_yaml(content.config.to_dict()), plan_text(planned, content.environments, content.criteria, about, more)
    for name, text in zip((CONFIG, PLAN), texts, strict=True):
        write_atomically(folder / name, text)


def _union(old: SweepConfig, new: SweepConfig) -> SweepConfig:
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
