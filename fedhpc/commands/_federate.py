"""One federated run in its run directory, from a checked configuration to `done`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedhpc.comm.checks import check_shared, pinning_problems, refuse
from fedhpc.comm.world import RanksLostError
from fedhpc.commands._configs import compare_data, compare_stored, is_medical
from fedhpc.commands._session import Session
from fedhpc.commands._unused import unused_settings
from fedhpc.config import RunConfig
from fedhpc.errors import DONE, STOPPED_EARLY, FedhpcError
from fedhpc.report.studies import FAILED as FAILED_FILE
from fedhpc.report.studies import resume_command
from fedhpc.runs.rundir import DONE as DONE_FILE
from fedhpc.runs.rundir import ENVIRONMENT, InUseError, RunDirectory, write_atomically

if TYPE_CHECKING:
    from fedhpc.comm.device import Pinning
    from fedhpc.federated.engine import Engine
    from fedhpc.federated.state import Outcome, Progress
    from fedhpc.timing import Stopwatch

_MOST_ROWS = 64


BUSY = -1
"""What `federate` returns, if it may, for a directory that another job works in."""


def federate(
    session: Session,
    config: RunConfig,
    path: Path,
    *,
    resume: bool,
    kept: RunConfig | None = None,
    show_ranks: bool = True,
    skip_busy: bool = False,
) -> int:
    """Run one federation in a run directory; collective. Returns the exit code.

    Args:
        session: the ranks.
        config: the checked configuration, the same on every rank.
        path: the run directory.
        resume: go on with the run it holds, if it holds one.
        kept: on root: the configuration that the directory keeps, where it is not this job's; see `before_copy`.
        show_ranks: print the table of ranks.
        skip_busy: return `BUSY` for a directory in use instead of raising.

    Raises:
        AgreedError: the directory, the data or the run is at fault; on every rank.
    """
    directory = RunDirectory(path, (kept or config).to_yaml())
    with session.patience("opening the run directory"):
        state = _open_directory(session, directory, config, resume, skip_busy)
        if state == "busy":
            session.say(f"{path}: another job works on it")
            return BUSY
        check_shared(session.world, path)
    session.log_folder = path / "log"
    if state == "finished":
        session.say(f"{path}: the run is finished; `fedhpc report {path}` shows it")
        return DONE
    try:
        if session.world.is_root:
            (path / FAILED_FILE).unlink(missing_ok=True)
        engine, outcome = _train(session, config, directory, show_ranks)
        if outcome.status == "stopped":
            why = session.world.share(session.stop.name) or "a signal"
            goes_on = "the same command goes on" if skip_busy else f"go on with: {resume_command(path)}"
            session.say(f"{path}: stopped after round {outcome.progress.round} ({why}); {goes_on}")
            return STOPPED_EARLY
        _finish(session, directory, engine, outcome)
        return DONE
    except FedhpcError as error:
        if session.world.is_root:
            with suppress(OSError):  # it may be the very reason
                write_atomically(path / FAILED_FILE, f"{error}\n")
        raise
    finally:
        directory.close()


def _open_directory(
    session: Session, directory: RunDirectory, config: RunConfig, resume: bool, skip_busy: bool
) -> Literal["ready", "finished", "busy"]:
    """Root: take the directory and compare configurations; returns what it found, on every rank."""
    problem: FedhpcError | None = None
    state: Literal["ready", "finished", "busy"] = "ready"
    if session.world.is_root:
        try:
            holds_run = directory.open(resume)
            if holds_run:
                compare_stored(directory.path, config)
            if directory.finished:
                state = "finished"
        except InUseError as error:
            state, problem = "busy", None if skip_busy else error
        except FedhpcError as error:
            problem = error
    session.world.agree(problem)
    return session.world.share(state)


def _train(session: Session, config: RunConfig, directory: RunDirectory, show_ranks: bool) -> tuple[Engine, Outcome]:
    """Set the process up and run the federation, under watch."""
    from fedhpc.comm.device import pin

    world = session.world
    device = config.device
    world.tune(config.aggregation.chunk, config.aggregation.reduce)
    with session.patience("choosing devices"):
        pinning = session.together(lambda: pin(world, device.name, device.threads, device.deterministic))
        gathered = world.gather(pinning)
        if gathered is not None:
            _note_ranks(session, gathered, directory, show_ranks)
        refuse(world, pinning_problems(gathered or []), session.warn)

    import torch

    from fedhpc.comm.liveness import Watch
    from fedhpc.timing import Stopwatch

    clock = Stopwatch(torch.cuda.synchronize if pinning.device != "cpu" else None)
    log = directory.path / "log"
    with Watch(world, log, clock, config.hang_seconds, session.end_hung, log / f"rank-{world.rank:05d}.log"):
        if is_medical(config):
            from fedhpc.commands._medical_loop import federation

            return federation(session, config, directory, pinning.device, clock)
        return _federation(session, config, directory, pinning.device, clock)


def _federation(
    session: Session, config: RunConfig, directory: RunDirectory, device: str, clock: Stopwatch
) -> tuple[Engine, Outcome]:
    """Build the federation, restore what was saved, and run the loop."""
    from fedhpc.commands import _federation as build
    from fedhpc.commands._domains import build_exam
    from fedhpc.commands._loop import RunLoop
    from fedhpc.federated.engine import Engine

    world = session.world
    with clock.phase("open data"):
        data = build.open_data(world, config)
        session.together(lambda: compare_data(directory.path / "partition.json", data.digest))
    with clock.phase("build model"):
        model, notes = build.build_model(world, config, data.store, device)
        trainer, cohorts = session.together(lambda: build.build_training(config, model, data))
    if world.is_root:
        directory.begin()  # not earlier: mistakes that show before do not occupy the directory
        directory.write_json("partition.json", build.partition_report(data))
        for note in [*notes, *data.partition.notes, *unused_settings(config, trainer.vector.buffers.numel() > 0)]:
            session.warn(note)
    loop = RunLoop(session, config, directory, config.rounds, data.store)
    engine = Engine(
        world,
        config.algorithm,
        trainer,
        build.client_data(data, device),
        cohorts,
        build.engine_settings(config),
        loop.sink,
        clock=clock,
        saver=loop.saver,
        stop_requested=loop.stop_requested,
        personalizer=build.build_personalizer(config, len(data.store.manifest.classes)),
        exam=build_exam(config, data, device),
    )
    loop.enter(engine, config.rounds)
    outcome = loop.run(engine)
    loop.close()
    return engine, outcome


def _note_ranks(session: Session, pinnings: list[Pinning], directory: RunDirectory, show: bool) -> None:
    """Root: print the table of ranks and write environment.json."""
    from fedhpc.comm.device import pinning_table, warnings_for
    from fedhpc.runs.environment import describe_environment

    if show:
        session.say(pinning_table(pinnings[:_MOST_ROWS]))
        if len(pinnings) > _MOST_ROWS:
            session.say(f"... and {len(pinnings) - _MOST_ROWS} more ranks: see {ENVIRONMENT}")
        for text in warnings_for(pinnings):
            session.warn(text)
    ranks = [asdict(p) for p in pinnings]
    before = directory.read_json(ENVIRONMENT)["ranks"] if (directory.path / ENVIRONMENT).exists() else ranks
    if {r["threads"] for r in before} != {r["threads"] for r in ranks}:
        session.warn(
            f"ranks computed with {_counts(before)} thread(s) before and with {_counts(ranks)} now: the bits of the "
            "result may differ from an undisturbed run's; set device.threads to keep them"
        )
    directory.write_json(ENVIRONMENT, describe_environment(ranks, session.world.library))


def _counts(ranks: list[dict[str, Any]]) -> str:
    """The different thread counts of some ranks."""
    return ", ".join(str(n) for n in sorted({r["threads"] for r in ranks}))


def _finish(session: Session, directory: RunDirectory, engine: Engine, outcome: Outcome) -> None:
    """Write the final model, `done` and, since no result depends on it, last the trace; collective."""
    if engine.server is not None:
        _write_results(directory, engine, outcome.progress, session.world.size)
    _write_trace(session, directory, engine)
    progress = outcome.progress
    accuracy = f"{progress.accuracy:.4f}" if progress.accuracy is not None else "not evaluated"
    session.say(
        f"{directory.path}: done after round {progress.round}, mean client accuracy {accuracy}, "
        f"{progress.seconds_train:.2f} s of training; `fedhpc report {directory.path}` makes the report"
    )


def _write_results(directory: RunDirectory, engine: Engine, progress: Progress, ranks: int) -> None:
    """Root: write the final model and then, at once, `done`."""
    from safetensors.torch import save_file

    from fedhpc.tensors.vector import sha256_float32

    assert engine.server is not None
    weights = engine.server.vectors["weights"]
    final = {name: t.contiguous() for name, t in engine.final_model().items()}
    temporary = directory.path / ".model.safetensors.tmp"
    save_file(final, str(temporary))
    temporary.replace(directory.path / "model.safetensors")
    reached = progress.reached
    done = {
        "rounds": progress.round,
        "final_client_accuracy": progress.accuracy,
        "seconds_train": progress.seconds_train,
        "seconds_evaluate": progress.seconds_evaluate,
        "time_to_accuracy": {"round": reached[0], "seconds": reached[1]} if reached else None,
        "weights_sha256": sha256_float32(weights),
        "ranks": ranks,
    }
    directory.write_json(DONE_FILE, done)


def _write_trace(session: Session, directory: RunDirectory, engine: Engine) -> None:
    """Gather the phases of all ranks into one file; a run whose trace cannot be had is complete all the same."""
    from fedhpc.runs.trace import trace_events, trace_file

    world = session.world
    try:
        gathered = world.gather(trace_events(engine.clock, world.rank, world.size))
        if gathered is not None:
            directory.write_json("trace.json", trace_file(gathered))
    except RanksLostError:
        session.warn(f"{directory.path}: no trace.json, as a rank was lost after the last round")
    except OSError as error:
        session.warn(f"{directory.path}: no trace.json: {error.strerror}")
