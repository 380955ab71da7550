"""`fedhpc run`: one federated run."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhpc.comm.checks import check_shared, pinning_problems, refuse
from fedhpc.commands._session import Session, in_session
from fedhpc.config import RunConfig, diff, load_config, parse_yaml
from fedhpc.errors import DONE, STOPPED_EARLY, ConfigError, FedhpcError
from fedhpc.runs.rundir import CONFIG, ENVIRONMENT, METRICS, RunDirectory, default_path, write_atomically
from fedhpc.runs.rundir import DONE as DONE_FILE

if TYPE_CHECKING:
    from fedhpc.comm.device import Pinning
    from fedhpc.federated.engine import Engine
    from fedhpc.federated.state import Outcome

TAKES_OVERRIDES = True
HELP = """Run one federation as a YAML file says, on as many ranks as the launcher starts.

example:
  mpirun -n 4 fedhpc run configs/smoke/fedavg.yaml --local.lr 0.05 --out runs/first

Any key of the configuration can be given as an option: --section.key value.
"""

_HARMLESS = ("placement", "checkpoint.every", "checkpoint.keep", "data.root", "data.memory")
"""Keys that may differ on resume: none of them changes a bit of the result."""

_MOST_ROWS = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own options."""
    parser.add_argument("config", metavar="CONFIG", help="YAML file of the run")
    parser.add_argument("--out", metavar="DIR", type=Path, help="run directory (default: runs/CONFIG-TIME)")
    parser.add_argument("--resume", action="store_true", help="go on with the run that DIR holds")
    parser.add_argument("--print_config", action="store_true", help="print the resolved configuration and stop")


def run(args: argparse.Namespace, overrides: list[str]) -> int:
    """Run the command on every rank; returns the exit code."""
    return in_session(lambda session: _run(session, args, overrides), args.debug)


def _run(session: Session, args: argparse.Namespace, overrides: list[str]) -> int:
    config = shared_config(session, args.config, overrides)
    if args.print_config:
        session.say(config.to_yaml().rstrip())
        return DONE
    path = session.world.share(args.out or default_path(args.config))
    return federate(session, config, path, resume=args.resume)


def shared_config(session: Session, path: str, overrides: list[str]) -> RunConfig:
    """Read and check the configuration on root, before torch is loaded, and give it to all ranks.

    Raises:
        AgreedError: it cannot be used; exit code 2 on every rank.
    """
    problem, config = None, None
    if session.world.is_root:
        try:
            config = load_config(path, overrides)
        except FedhpcError as error:
            problem = error
    session.world.agree(problem)
    tree = session.world.share(config.to_dict() if config else None)
    return config or RunConfig.from_dict(tree or {})


def federate(session: Session, config: RunConfig, path: Path, resume: bool) -> int:
    """Run one federation in a run directory; collective. Returns the exit code."""
    directory = RunDirectory(path)
    finished = _open_directory(session, directory, config, resume)
    check_shared(session.world, path)
    session.log_folder = path / "log"
    if finished:
        session.say(f"{path}: the run is finished; `fedhpc report {path}` shows it")
        return DONE
    try:
        engine, outcome = _train(session, config, directory)
        if outcome.status == "stopped":
            why = session.world.share(session.stop.name) or "a signal"
            session.say(f"{path}: stopped after round {outcome.progress.round} ({why}); go on with --resume")
            return STOPPED_EARLY
        _finish(session, directory, engine, outcome)
        return DONE
    finally:
        directory.close()


def _open_directory(session: Session, directory: RunDirectory, config: RunConfig, resume: bool) -> bool:
    """Root: take the directory and compare configurations; returns whether the run is finished already."""
    problem, finished = None, False
    if session.world.is_root:
        try:
            holds_run = directory.open(resume)
            if holds_run and (directory.path / CONFIG).exists():
                _compare(directory, config)
            finished = directory.finished
            if not finished:
                write_atomically(directory.path / CONFIG, config.to_yaml())
        except FedhpcError as error:
            problem = error
        except OSError as error:
            problem = FedhpcError(f"{directory.path}: cannot be written ({error.strerror}); choose another --out")
    session.world.agree(problem)
    return session.world.share(finished)


def _compare(directory: RunDirectory, config: RunConfig) -> None:
    """Refuse to go on with another configuration than the run began with."""
    file = directory.path / CONFIG
    old = RunConfig.from_dict(parse_yaml(file.read_text(encoding="utf-8"), str(file)), str(file)).to_dict()
    new = config.to_dict()
    keys = [key for key in diff(old, new) if key not in _HARMLESS]
    if keys:
        shown = "; ".join(f"{key}: {_value(old, key)} there, {_value(new, key)} now" for key in keys[:8])
        more = f" and {len(keys) - 8} more" if len(keys) > 8 else ""
        raise ConfigError(
            f"{directory.path}: holds a run of another configuration ({shown}{more}); choose another --out"
        )


def _value(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


def _train(session: Session, config: RunConfig, directory: RunDirectory) -> tuple[Engine, Outcome]:
    """Set the process up, build the federation, restore what was saved, and run the loop."""
    from fedhpc.comm.device import pin

    world = session.world
    pinning = pin(world, config.device.name, config.device.threads, config.device.deterministic)
    gathered = world.gather(pinning)
    if gathered is not None:
        _show_ranks(session, gathered, directory)
    refuse(world, pinning_problems(gathered or []), session.warn)

    import torch

    from fedhpc.commands import _federation as build
    from fedhpc.commands._saving import RunSaver, restore
    from fedhpc.commands._sink import RunSink
    from fedhpc.federated.cohorts import SampledCohorts, cohort_size
    from fedhpc.federated.engine import Engine
    from fedhpc.federated.records import NullSink
    from fedhpc.runs.checkpoint import CheckpointFolder
    from fedhpc.runs.records import RecordWriter
    from fedhpc.timing import Stopwatch

    clock = Stopwatch(torch.cuda.synchronize if pinning.device != "cpu" else None)
    with clock.phase("open data"):
        data = build.open_data(world, config)
        transform = build.build_transform(config, data.store)
    with clock.phase("build model"):
        model, notes = build.build_model(world, config, data.store, pinning.device)
    if world.is_root:
        directory.write_json("partition.json", build.partition_report(data))
        for note in [*notes, *data.partition.notes, *build.unused_settings(config)]:
            session.warn(note)
    writer = RecordWriter(directory.path / METRICS) if world.is_root else None
    sink = RunSink(writer, config.rounds, config.evaluate.target_accuracy) if writer else NullSink()
    folder = CheckpointFolder(directory.path / "checkpoints", config.checkpoint.keep)
    clients = build.client_data(data, pinning.device)
    size = cohort_size(len(clients.num_train), config.cohort.size, config.cohort.fraction)
    engine = Engine(
        world,
        config.algorithm,
        build.build_trainer(config, model, transform),
        clients,
        SampledCohorts(len(clients.num_train), size, config.seed),
        build.engine_settings(config),
        sink,
        clock=clock,
        saver=RunSaver(world, folder, writer),
        stop_requested=lambda: bool(session.stop),
        personalizer=build.build_personalizer(config, len(data.store.manifest.classes)),
    )
    stored = _latest(session, folder)
    kept = restore(world, engine, stored)
    if writer is not None:
        writer.truncate_to(kept)
        if stored is not None:
            session.say(f"resuming after round {stored.round}")
    engine.warm_up(min(config.warmup_rounds, config.rounds - engine.progress.round))
    outcome = engine.run()
    if isinstance(sink, RunSink):
        sink.close()
    return engine, outcome


def _latest(session: Session, folder: Any) -> Any:
    """The newest whole checkpoint, found and checked by root, known to all."""
    problem, stored = None, None
    if session.world.is_root:
        try:
            stored = folder.latest(session.warn)
        except FedhpcError as error:
            problem = error
    session.world.agree(problem)
    return session.world.share(stored)


def _show_ranks(session: Session, pinnings: list[Pinning], directory: RunDirectory) -> None:
    """Root: print the table of ranks and write environment.json."""
    from fedhpc.comm.device import pinning_table, warnings_for
    from fedhpc.runs.environment import describe_environment

    session.say(pinning_table(pinnings[:_MOST_ROWS]))
    if len(pinnings) > _MOST_ROWS:
        session.say(f"... and {len(pinnings) - _MOST_ROWS} more ranks: see {ENVIRONMENT}")
    for text in warnings_for(pinnings):
        session.warn(text)
    ranks = [asdict(p) for p in pinnings]
    directory.write_json(ENVIRONMENT, describe_environment(ranks, session.world.library))


def _finish(session: Session, directory: RunDirectory, engine: Engine, outcome: Outcome) -> None:
    """Write the final model, the trace and, last, `done`."""
    from fedhpc.runs.trace import trace_events
    from fedhpc.tensors.vector import sha256_float32

    events = session.world.gather(trace_events(engine.clock, session.world.rank))
    if engine.server is None or events is None:
        return
    from safetensors.torch import save_file

    weights = engine.server.vectors["weights"]
    final = {name: t.contiguous() for name, t in engine.final_model().items()}
    save_file(final, str(directory.path / "model.safetensors"))
    directory.write_json("trace.json", {"traceEvents": [event for found in events for event in found]})
    progress = outcome.progress
    reached = progress.reached
    done = {
        "rounds": progress.round,
        "final_client_accuracy": progress.accuracy,
        "seconds_train": progress.seconds_train,
        "seconds_evaluate": progress.seconds_evaluate,
        "time_to_accuracy": {"round": reached[0], "seconds": reached[1]} if reached else None,
        "weights_sha256": sha256_float32(weights),
        "ranks": session.world.size,
    }
    directory.write_json(DONE_FILE, done)
    accuracy = f"{progress.accuracy:.4f}" if progress.accuracy is not None else "not evaluated"
    session.say(
        f"{directory.path}: done after round {progress.round}, mean client accuracy {accuracy}, "
        f"{progress.seconds_train:.2f} s of training; `fedhpc report {directory.path}` makes the report"
    )
