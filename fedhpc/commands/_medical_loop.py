"""The loop of a medical run: stage after stage, from what was saved to the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedhpc.commands import _federation as build
from fedhpc.commands import _medical
from fedhpc.commands._session import Session
from fedhpc.medical.config import MedicalConfig
from fedhpc.runs.rundir import CONFIG, METRICS, RunDirectory, write_atomically

if TYPE_CHECKING:
    from fedhpc.federated.engine import Engine
    from fedhpc.federated.state import Outcome
    from fedhpc.runs.checkpoint import Stored
    from fedhpc.timing import Stopwatch


def federation(
    session: Session, config: MedicalConfig, directory: RunDirectory, device: str, clock: Stopwatch
) -> tuple[Engine, Outcome]:
    """Build the run, restore what was saved, and train on one task after the other."""
    from fedhpc.comm.deadline import Deadline
    from fedhpc.commands._federate import latest
    from fedhpc.commands._saving import RunSaver, restore
    from fedhpc.commands._sink import RunSink
    from fedhpc.commands._survivors import cannot_survive, run_surviving
    from fedhpc.federated.records import NullSink
    from fedhpc.runs.checkpoint import CheckpointFolder
    from fedhpc.runs.records import RecordWriter

    world = session.world
    with clock.phase("open data"):
        data = _medical.open_data(world, config)
    with clock.phase("build model"):
        model, notes = build.build_model(world, config, data.store, device)
        run = _medical.build_run(world, config, data, model, device)
    if world.is_root:
        write_atomically(directory.path / CONFIG, config.to_yaml())
        directory.write_json("scenario.json", _medical.report_of(data))
        for note in [*notes, *_medical.unused_settings(config, data)]:
            session.warn(note)
    writer = RecordWriter(directory.path / METRICS) if world.is_root else None
    folder = CheckpointFolder(directory.path / "checkpoints", config.checkpoint.keep)
    saver = RunSaver(world, folder, writer)
    total = run.stages[-1].end
    sink = RunSink(writer, total, config.evaluate.target_accuracy) if writer else NullSink()
    deadline: Deadline | None = None
    engine: Engine | None = None

    def stop_requested() -> bool:
        if deadline is not None and engine is not None and deadline.is_near(engine.progress.round, saver.longest):
            session.stop.ask("the job's time is running out")
        return bool(session.stop)

    survive = config.on_rank_loss == "continue"
    if survive and (problem := cannot_survive(world)):
        session.warn(problem)
    stored = latest(session, folder)
    outcome: Outcome | None = None
    for stage in run.stages:
        if stored is not None and not _left(stored, stage.end):
            continue
        following = run.engine(stage, sink, clock, saver, stop_requested)
        if engine is not None:
            following.continue_from(engine)
        else:
            kept = restore(world, following, stored)
            if writer is not None:
                writer.truncate_to(kept)
                if stored is not None:
                    session.say(f"resuming after round {stored.round}")
            following.warm_up(min(config.warmup_rounds, stage.end - following.progress.round))
            deadline = Deadline() if world.is_root else None
        engine = following
        run.begin(stage, engine)
        outcome = run_surviving(session, engine, folder, sink) if survive else engine.run()
        if outcome.status == "stopped":
            break
    if isinstance(sink, RunSink):
        sink.close()
    assert engine is not None, "a run has at least one stage"
    assert outcome is not None
    return engine, outcome


def _left(stored: Stored, end: int) -> bool:
    """Whether something of a stage that ends there is still to be done, if only its exam."""
    return stored.round < end or (stored.round == end and stored.meta["progress"]["evaluated"] != end)
