"""What `fedhpc sweep` does: open the datasets, plan, and let this rank claim and run trials."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhpc.comm.checks import check_shared, pinning_problems, refuse
from fedhpc.comm.deadline import job_end
from fedhpc.commands._session import Session
from fedhpc.commands._trials import TrialRunner, asked_models, kept_models
from fedhpc.config import from_tree, load
from fedhpc.data.fingerprint import fingerprint
from fedhpc.data.stores import Store, attach_store
from fedhpc.errors import ConfigError, DataRequestError, FedhpcError
from fedhpc.report.trial_files import is_sweep
from fedhpc.runs.environment import describe_environment, device_kind
from fedhpc.runs.rundir import write_atomically
from fedhpc.sweep.data_checks import check_models, check_splits, check_transforms
from fedhpc.sweep.datasets import facts_of, open_dataset, published_facts
from fedhpc.sweep.draws import refuse_other_draws
from fedhpc.sweep.estimate import DatasetFacts, Rates, Timed, seconds_by_dataset
from fedhpc.sweep.folder import LOG, DataFacts, write_sweep
from fedhpc.sweep.plan import Plan, make_plan, remark_text, remarks
from fedhpc.sweep.plan import plan_text as text_of
from fedhpc.sweep.queue_files import states
from fedhpc.sweep.schedule import Queue
from fedhpc.sweep.settings import SweepConfig
from fedhpc.sweep.status import timed_trials
from fedhpc.sweep.stored import without_copies
from fedhpc.sweep.trials import TrialSpec
from fedhpc.timing import Stopwatch

if TYPE_CHECKING:
    from fedhpc.comm.device import Pinning


@dataclass(frozen=True)
class Prepared:
    """A sweep as every rank has it.

    Attributes:
        config: the configuration.
        plan: on root; elsewhere None.
        trials: what is to be run, longest first.
        stores: the datasets, by name.
        models: steps after which a trial's model is kept, by id.
        absent: why datasets cannot be opened, by name; only before a dry run, which counts their trials all the same.
    """

    config: SweepConfig
    plan: Plan | None
    trials: tuple[TrialSpec, ...]
    stores: Mapping[str, Store]
    models: Mapping[str, Collection[int]] = field(default_factory=dict)
    absent: Mapping[str, FedhpcError] = field(default_factory=dict)


def prepare(
    session: Session, path: str, overrides: Sequence[str], folder: Path, only: str | None, dry: bool
) -> Prepared:
    """Read the configuration, open the datasets, plan; root writes the sweep's files unless `dry`. Collective.

    Args:
        session: the ranks.
        path: of the configuration.
        overrides: of its keys.
        folder: the sweep's.
        only: `ID,ID@STEP`: the trials to run, and steps after which their models are kept; None for all.
        dry: write nothing.

    Raises:
        AgreedError: something cannot be used; on every rank.
    """
    world = session.world
    found: Prepared | None = None
    problem: FedhpcError | None = None
    if world.is_root:
        try:
            found = _prepare(path, overrides, folder, only, dry)
        except FedhpcError as error:
            problem = error
        except OSError as error:
            problem = FedhpcError(f"{folder}: cannot be written ({error.strerror}); choose another --out")
    world.agree(problem)
    small = (found.config.to_dict(), found.trials, found.models) if found else ({}, (), {})
    tree, trials, models = world.share(small)
    descriptions = world.share({name: store.describe() for name, store in found.stores.items()} if found else {})
    if found is None:
        config = from_tree(SweepConfig, tree, "configuration")
        stores = {name: attach_store(config.sweep.roots[name], about) for name, about in descriptions.items()}
        found = Prepared(config, None, trials, stores, models)
    if not dry:
        check_shared(world, folder)
    return found


def _prepare(path: str, overrides: Sequence[str], folder: Path, only: str | None, dry: bool) -> Prepared:
    """What root does of `prepare`."""
    ids, asked = asked_models(only)
    config = load(SweepConfig, path, overrides)
    stores, facts, absent = _opened(config, dry)
    whole = make_plan(config, facts)
    check_transforms(whole, stores)
    check_splits(whole, stores)
    plan = whole.only(ids) if ids else whole
    models = kept_models(asked, plan.trials, config.checkpoint.keep)
    if not dry:
        refuse_other_draws(folder, plan)
        check_models(plan, stores, _weights_file(config))
        data = {name: DataFacts(fingerprint(store), store.num_samples) for name, store in stores.items()}
        kept = without_copies(config, path, overrides)
        write_sweep(folder, kept, plan, data)  # in a new folder, `--only` plans no more than that
    return Prepared(config, plan, plan.trials, stores, models, absent)


def _opened(config: SweepConfig, dry: bool) -> tuple[dict[str, Store], dict[str, DatasetFacts], dict[str, FedhpcError]]:
    """The datasets, facts about them, and, if `dry`, what is wrong with those whose facts are known without them."""
    stores: dict[str, Store] = {}
    facts: dict[str, DatasetFacts] = {}
    absent: dict[str, FedhpcError] = {}
    for name, root in config.sweep.roots.items():
        try:
            stores[name] = open_dataset(name, root)
            facts[name] = facts_of(stores[name])
        except (ConfigError, DataRequestError) as error:
            known = published_facts(name) if dry else None
            if known is None:
                raise
            facts[name], absent[name] = known, error
    return stores, facts, absent


def _weights_file(config: SweepConfig) -> str | None:
    """Where the starting weights lie, if they are a file; a trial's identity has the file's name only."""
    weights = config.model.weights
    return weights if weights is not None and Path(weights).suffix else None


def introduction(session: Session, prepared: Prepared) -> str:
    """What root says before the trials run."""
    if prepared.plan is None:
        return ""
    text = f"{len(prepared.trials)} trials, {session.world.size} rank{'s' if session.world.size > 1 else ''}"
    return "\n".join(filter(None, [text, remark_text(prepared.plan)]))


def dry_run(session: Session, prepared: Prepared, folder: Path, as_json: bool = False) -> str:
    """The plan with an estimate, for a person or as JSON; empty but on root. Collective."""
    pinning = _pin(session, prepared.config, quiet=True)
    if prepared.plan is None:
        return ""
    plan, size = prepared.plan, session.world.size
    settled = _settled(prepared, plan, folder)
    timed, how = _timed(prepared, plan, folder, settled, pinning.device)
    there = [t for t in plan.trials if t.id not in settled and t.dataset not in prepared.absent]
    left = seconds_by_dataset(there, plan.costs, Rates(timed)) if prepared.stores else None
    if as_json:
        first, rest = remarks(plan)
        known = {"counts": plan.counts(), "open": len(there), "profile": plan.profile, "remarks": [*first, *rest]}
        each = None if left is None else {name: seconds / size for name, seconds in left.items()}
        known |= {"seconds_left": None if each is None else sum(each.values()), "seconds_left_by_dataset": each or {}}
        return json.dumps({**known, "absent": {name: str(error) for name, error in prepared.absent.items()}})
    where = f"{socket.gethostname()}, {pinning.device}, {pinning.threads} thread{'s' if pinning.threads > 1 else ''}"
    lines = [text_of(plan, left, size)]
    lines += [f"          from {how} on {where}; {len(there)} trials to run"] if left is not None else []
    if prepared.absent:
        named = ", ".join(prepared.absent)
        lines += ["", f"not there, and counted as published, for images of 224x224 or 28x28 pixels: {named}"]
    return "\n".join(lines)


def _settled(prepared: Prepared, plan: Plan, folder: Path) -> set[str]:
    """The trials that are done."""
    if not is_sweep(folder):
        return set()
    found = states(folder, [t.id for t in plan.trials], prepared.config.queue.settings())
    return {trial for trial, state in found.items() if state == "done"}


def _timed(
    prepared: Prepared, plan: Plan, folder: Path, settled: Collection[str], device: str
) -> tuple[list[Timed], str]:
    """Seconds of finished trials, and of a short probe on root of datasets that have none; and where they are from."""
    done = [t.planned() for t in plan.trials if t.id in settled]
    timed = [Timed(t.dataset, t.algorithm, plan.costs[t.id], seconds) for t, seconds in timed_trials(folder, done)]
    finished = {t.dataset for t in timed}
    unknown = {name: store for name, store in prepared.stores.items() if name not in finished}
    if not unknown:
        return timed, f"{len(settled)} finished trials"
    from fedhpc.sweep.probe import probe

    timed += probe(plan, unknown, device)
    return timed, f"{len(settled)} finished trials and a probe of the rest" if finished else "a probe of a few steps"


def _pin(session: Session, config: SweepConfig, quiet: bool = False) -> Pinning:
    """Choose and check the devices; collective."""
    from fedhpc.comm.device import pin, warnings_for

    world, device = session.world, config.device
    with session.patience("choosing devices"):
        pinning = session.together(lambda: pin(world, device.name, device.threads, device.deterministic))
        pinnings = world.gather(pinning) or []
        for text in warnings_for(pinnings) if not quiet else ():
            session.warn(text)
        refuse(world, pinning_problems(pinnings), session.warn)
        return pinning


def run_trials(session: Session, prepared: Prepared, folder: Path, clock: Stopwatch) -> bool:
    """Claim and run trials on this rank until all are settled or a stop is asked for; returns which it was."""
    world, config = session.world, prepared.config
    pinning = _pin(session, config)
    pinnings = world.gather(pinning)
    if pinnings is not None:
        if problem := other_devices(folder, [asdict(p) for p in pinnings]):
            session.warn(problem)
        about = describe_environment([asdict(p) for p in pinnings], world.library)
        name = f"environment-{time.strftime('%Y%m%d-%H%M%S')}-{socket.gethostname()}-{os.getpid()}.json"
        write_atomically(folder / LOG / name, json.dumps(about, indent=1) + "\n")
    end = world.share(job_end() if world.is_root else None)
    by_id = {t.id: t for t in prepared.trials}
    label = {"rank": world.rank}
    with Queue(folder, list(by_id), world.rank, config.queue.settings(), label, config.hang_seconds) as queue:
        runner = TrialRunner(
            session,
            folder,
            prepared.stores,
            queue,
            clock,
            device=pinning.device,
            checkpoint_seconds=config.checkpoint.seconds,
            weights_file=_weights_file(config),
            end=end,
            models=prepared.models,
        )
        return runner.run(by_id)


def other_devices(folder: Path, ranks: Sequence[Mapping[str, Any]]) -> str | None:
    """What to say where the last job of a sweep computed with something else: sums are rounded in another order.

    Args:
        folder: the sweep's.
        ranks: of this job, as `environment-*.json` has them.
    """
    try:
        last = max((folder / LOG).glob("environment-*.json"), key=lambda file: file.stat().st_mtime)
        before = _devices(json.loads(last.read_text(encoding="utf-8"))["ranks"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # there is none, or it cannot be read
    now = _devices(ranks)
    if now == before:
        return None
    return (
        f"trials of this sweep were trained on {before}, now it is {now}: records of one trial would differ in their "
        "last digits; --device.name and --device.threads choose"
    )


def _devices(ranks: Sequence[Mapping[str, Any]]) -> str:
    """Kinds of devices."""
    kinds = {f"CPU with {r['threads']} thread(s)" if r["device"] == "cpu" else device_kind(r["label"]) for r in ranks}
    return " and ".join(sorted(kinds))


@contextmanager
def watched(session: Session, folder: Path, clock: Stopwatch, limit: float) -> Iterator[None]:
    """Signs of life of this job's ranks: a rank that keeps the others waiting for ever ends the job; collective."""
    from fedhpc.comm.liveness import Watch

    world = session.world
    signs = folder / LOG / f"signs-{world.share(secrets.token_hex(4))}"  # other jobs work in this folder, too
    if world.is_root and world.size > 1:
        signs.mkdir()
    world.barrier()

    def end(message: str) -> None:
        session.end_hung(message.replace("go on with --resume", "run the same command again to go on"))

    log = folder / LOG / f"rank-{world.rank:05d}.log"
    try:
        with Watch(world, signs, clock, limit, end, log):
            yield
    finally:
        if world.is_root:
            shutil.rmtree(signs, ignore_errors=True)
