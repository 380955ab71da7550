"""What `fedhpc sweep` does: open the datasets, plan, and let this rank claim and run trials."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import fedhpc
from fedhpc.commands._session import Session
from fedhpc.config import diff, from_tree, load, parse_yaml, to_yaml
from fedhpc.data.stores import Store, attach_store, open_store
from fedhpc.errors import ConfigError, FedhpcError
from fedhpc.report.results import PlannedTrial
from fedhpc.report.trial_files import CONFIG, DONE, PLAN, is_sweep, plan_text, read_plan
from fedhpc.runs.environment import describe_environment
from fedhpc.runs.rundir import BATCH_FILES, write_atomically
from fedhpc.sweep.estimate import Rates, Timed, seconds_by_dataset
from fedhpc.sweep.plan import Plan, check_models, check_transforms, facts_of, make_plan
from fedhpc.sweep.plan import plan_text as text_of
from fedhpc.sweep.queue_files import forgive, reopen, states
from fedhpc.sweep.schedule import Claim, Ending, Queue, work
from fedhpc.sweep.settings import AXES, HARMLESS, SweepConfig
from fedhpc.sweep.status import timed_trials
from fedhpc.sweep.trials import TrialSpec

_LOST_CHECK = 5.0
"""Seconds between looks whether a running trial still belongs to this worker."""
_QUIET_SECONDS = 2.0


@dataclass(frozen=True)
class Prepared:
    """A sweep as every rank has it.

    Attributes:
        config: the configuration.
        plan: on root; elsewhere None.
        trials: what is to be run, longest first.
        stores: the datasets, by name.
    """

    config: SweepConfig
    plan: Plan | None
    trials: tuple[TrialSpec, ...]
    stores: Mapping[str, Store]


def prepare(
    session: Session, path: str, overrides: Sequence[str], folder: Path, only: Sequence[str] | None, dry: bool
) -> Prepared:
    """Read the configuration, open the datasets, plan; root writes the sweep's files unless `dry`. Collective.

    Raises:
        AgreedError: something cannot be used; on every rank.
    """
    world = session.world
    config, plan, stores = None, None, {}
    problem: FedhpcError | None = None
    if world.is_root:
        try:
            config = load(SweepConfig, path, overrides)
            stores = {name: open_store(name, root) for name, root in config.sweep.datasets.items()}
            whole = make_plan(config, {name: facts_of(store) for name, store in stores.items()})
            check_transforms(whole, stores)
            plan = whole.only(only) if only else whole
            if not dry:
                check_models(plan, stores, _weights_file(config))
                _write(folder, config, whole)
        except FedhpcError as error:
            problem = error
        except OSError as error:
            problem = FedhpcError(f"{folder}: cannot be written ({error.strerror}); choose another --out")
    world.agree(problem)
    tree = world.share(config.to_dict() if config else None)
    trials = world.share(plan.trials if plan else None)
    descriptions = world.share({name: store.describe() for name, store in stores.items()} if plan else None)
    if config is None:
        config = from_tree(SweepConfig, tree or {}, "configuration")
        roots = config.sweep.datasets
        stores = {name: attach_store(roots[name], about) for name, about in (descriptions or {}).items()}
    return Prepared(config, plan, trials or (), stores)


def _weights_file(config: SweepConfig) -> str | None:
    """Where the starting weights lie, if they are a file; a trial's identity has the file's name only."""
    weights = config.model.weights
    return weights if weights is not None and Path(weights).suffix else None


def _write(folder: Path, config: SweepConfig, plan: Plan) -> None:
    """Write configuration and plan; a sweep that is there already may grow but not change."""
    planned = {t.id: t.planned() for t in plan.trials}
    environments = {name: facts.environments for name, facts in plan.facts.items()}
    names = list(plan.criteria)
    if is_sweep(folder):
        _refuse_change(folder, config)
        before = read_plan(folder)
        planned = {**{t.id: t for t in before.planned}, **planned}
        environments = {**(before.environments or {}), **environments}
        names = list(dict.fromkeys([*before.criteria, *names]))
    elif folder.exists() and any(entry.name not in BATCH_FILES for entry in folder.iterdir()):
        raise ConfigError(f"{folder}: is not empty and holds no sweep; choose another --out")
    (folder / "log").mkdir(parents=True, exist_ok=True)
    about = {"planned with": fedhpc.__version__, "profile": plan.profile}
    write_atomically(folder / CONFIG, to_yaml(config.to_dict()))
    ordered = sorted(planned.values(), key=_place)
    write_atomically(folder / PLAN, plan_text(ordered, environments, names, about))


def _place(trial: PlannedTrial) -> tuple[Any, ...]:
    return trial.dataset, trial.algorithm, trial.test_envs, trial.trial_seed, trial.hparams_seed


def _refuse_change(folder: Path, config: SweepConfig) -> None:
    file = folder / CONFIG
    old = from_tree(SweepConfig, parse_yaml(file.read_text(encoding="utf-8"), str(file)), str(file)).to_dict()
    changed = [k for k in diff(old, config.to_dict()) if not k.startswith((*AXES, *HARMLESS))]
    if changed:
        raise ConfigError(
            f"{folder}: holds a sweep with other settings ({', '.join(changed[:8])}); choose another --out"
        )


def dry_run(session: Session, prepared: Prepared, folder: Path) -> str:
    """The plan with an estimate from finished trials, else from a short probe on root."""
    if prepared.plan is None:
        return ""
    plan = prepared.plan
    settled: set[str] = set()
    timed: list[Timed] = []
    if is_sweep(folder):
        found = states(folder, [t.id for t in plan.trials], prepared.config.queue.settings())
        settled = {trial for trial, state in found.items() if state == "done"}
        done = [t.planned() for t in plan.trials if t.id in settled]
        for trial, seconds in timed_trials(folder, done):
            timed.append(Timed(trial.dataset, trial.algorithm, plan.costs[trial.id], seconds))
    probed = not timed
    if probed:
        from fedhpc.sweep.probe import probe

        timed = probe(plan, prepared.stores)
    open_ = [t for t in plan.trials if t.id not in settled]
    left = seconds_by_dataset(open_, plan.costs, Rates(timed))
    how = "a probe of a few steps" if probed else f"{len(settled)} finished trials"
    text = text_of(plan, left, session.world.size)
    return f"{text}\n          from {how} on {socket.gethostname()}, {len(open_)} trials to run"


def reopen_trials(session: Session, prepared: Prepared, folder: Path, retry_failed: bool) -> None:
    """Root: let trials be run again whose records are gone, and, if asked for, those that failed; collective."""
    if session.world.is_root:
        places = {t.id: folder / t.folder / DONE for t in prepared.trials}
        if gone := reopen(folder, lambda trial: not places[trial].exists(), places):
            session.say(f"{gone} trials are marked as done but have no records; they will be run again")
        if retry_failed:
            session.say(f"{forgive(folder, places)} failed trials will be tried again")
    session.world.barrier()


def run_trials(session: Session, prepared: Prepared, folder: Path) -> bool:
    """Claim and run trials on this rank until all are settled or a stop is asked for; returns which it was."""
    from fedhpc.comm.device import pin

    world, config = session.world, prepared.config
    pinning = pin(world, config.device.name, config.device.threads, config.device.deterministic)
    pinnings = world.gather(pinning)
    if pinnings is not None:
        from fedhpc.comm.device import warnings_for

        for text in warnings_for(pinnings):
            session.warn(text)
        about = describe_environment([asdict(p) for p in pinnings], world.library)
        name = f"environment-{time.strftime('%Y%m%d-%H%M%S')}-{socket.gethostname()}-{os.getpid()}.json"
        write_atomically(folder / "log" / name, json.dumps(about, indent=1) + "\n")
    by_id = {t.id: t for t in prepared.trials}
    queue = Queue(folder, list(by_id), world.rank, config.queue.settings(), {"rank": world.rank})
    with queue:
        runner = _Runner(session, prepared, folder, pinning.device, len(by_id))
        return work(
            queue,
            lambda claim: runner.attempt(by_id[claim.trial], claim),
            lambda: bool(session.stop),
            lambda claim, trace: runner.failed(by_id[claim.trial], claim, trace),
        )


class _Runner:
    """This rank's way from a claim to a finished trial."""

    def __init__(self, session: Session, prepared: Prepared, folder: Path, device: str, number: int) -> None:
        self._session, self._prepared, self._folder, self._device = session, prepared, folder, device
        self._number = number
        self._said = 0.0
        self._finished = 0

    def attempt(self, spec: TrialSpec, claim: Claim) -> Ending:
        """Run one trial."""
        from fedhpc.sweep.run_trial import run_trial
        from fedhpc.sweep.trial_folder import TrialFolder

        begun = time.perf_counter()
        place = self._folder / spec.folder
        if (place / DONE).exists():
            return "done"
        stop = _stop_of(self._session, claim)
        sink = TrialFolder(place, claim.attempt, self._prepared.config.checkpoint.seconds, stop)
        try:
            file = _weights_file(self._prepared.config)
            done = run_trial(spec, self._prepared.stores[spec.dataset], sink, self._device, file)
            if claim.is_lost:
                return "lost"
            if done is None:
                return "stopped"
            seconds = time.perf_counter() - begun
            sink.finish({**done, "seconds": seconds, "attempts": claim.attempt, "device": self._device,
                         "host": socket.gethostname(), "fedhpc": fedhpc.__version__})  # fmt: skip
        finally:
            sink.leave()
        self._finished += 1
        self._tell(f"{_label(spec)}: {seconds:.3g} s")
        return "done"

    def failed(self, spec: TrialSpec, claim: Claim, trace: str) -> None:
        """Tell that an attempt raised."""
        self._session.log(f"{spec.folder}, attempt {claim.attempt}\n{trace}")
        print(
            f"fedhpc: warning: rank {self._session.world.rank}: {_label(spec)} failed (attempt {claim.attempt}): "
            f"{trace.strip().splitlines()[-1]}",
            flush=True,
        )

    def _tell(self, text: str) -> None:
        now = time.monotonic()
        if self._session.world.is_root and now - self._said >= _QUIET_SECONDS:
            self._said = now
            print(f"{time.strftime('%H:%M:%S')} rank 0 finished {self._finished}, last {text}", flush=True)


def _label(spec: TrialSpec) -> str:
    return (
        f"{spec.algorithm} on {spec.dataset}, test environments {list(spec.test_envs)}, hparams {spec.hparams_seed}, "
        f"trial {spec.trial_seed}"
    )


def _stop_of(session: Session, claim: Claim) -> Callable[[], bool]:
    """Whether to stop a trial: someone asked, or (looked at rarely) another worker has taken it over."""
    looked = time.monotonic()
    lost = False

    def stop() -> bool:
        nonlocal looked, lost
        if time.monotonic() - looked >= _LOST_CHECK:
            looked, lost = time.monotonic(), claim.is_lost
        return lost or bool(session.stop)

    return stop
