"""What stands around the engines of one run: records, checkpoints, the job's clock, and the way back in."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedhpc.comm.deadline import Deadline
from fedhpc.comm.world import RanksLostError
from fedhpc.commands._saving import RunSaver, restore
from fedhpc.commands._sink import RunSink
from fedhpc.commands._survivors import cannot_survive, run_surviving
from fedhpc.commands._traffic import TrafficLog
from fedhpc.errors import FedhpcError
from fedhpc.federated.records import NullSink
from fedhpc.runs.checkpoint import CheckpointFolder
from fedhpc.runs.records import RecordWriter
from fedhpc.runs.rundir import METRICS, RunDirectory

if TYPE_CHECKING:
    from fedhpc.commands._session import Session
    from fedhpc.config import RunConfig
    from fedhpc.data.stores import Store
    from fedhpc.federated.engine import Engine
    from fedhpc.federated.records import Sink
    from fedhpc.federated.state import Outcome
    from fedhpc.runs.checkpoint import Stored


@dataclass
class RunLoop:
    """Runs engines one after another in a run directory, from what was saved there; built on every rank.

    Args:
        session: the ranks.
        config: of the run.
        directory: where records and checkpoints go.
        rounds: rounds of the whole run, for the progress bar.
        store: what this rank reads samples from.

    Attributes:
        stored: the checkpoint the run goes on from, if there is one.
    """

    session: Session
    config: RunConfig
    directory: RunDirectory
    rounds: int
    store: Store
    stored: Stored | None = field(init=False)

    def __post_init__(self) -> None:
        """Open the records on root and find the newest checkpoint; collective."""
        world, config = self.session.world, self.config
        self._writer = RecordWriter(self.directory.path / METRICS) if world.is_root else None
        self.sink: Sink = NullSink()
        if self._writer:
            self.sink = RunSink(self._writer, self.rounds, config.evaluate.target_accuracy)
        self._folder = CheckpointFolder(self.directory.path / "checkpoints", config.checkpoint.keep)
        self._traffic = TrafficLog(world, self.sink, lambda: self.store.seconds_reading)
        self.saver = RunSaver(world, self._folder, self._writer, self._traffic)
        self._survives = config.on_rank_loss == "continue"
        if self._survives and (problem := cannot_survive(world)):
            self.session.warn(problem)
        self._deadline: Deadline | None = None
        self._engine: Engine | None = None
        self._outcome: Outcome | None = None
        self.stored = _latest(self.session, self._folder)

    def stop_requested(self) -> bool:
        """Whether to stop at the end of this round: somebody asked, or (root) the job's time is running out."""
        engine, stop = self._engine, self.session.stop
        if self._deadline and engine and self._deadline.is_near(engine.progress.round, self.saver.longest):
            stop.ask("the job's time is running out")
        return bool(stop)

    def enter(self, engine: Engine, end: int) -> None:
        """Put what was saved into the first engine, warm it up, and start the clocks; collective.

        Args:
            engine: not yet run.
            end: its last round.
        """
        kept = restore(self.session.world, engine, self.stored)
        if self._writer is not None:
            self._writer.truncate_to(kept)
            if self.stored is not None:
                self.session.say(f"resuming after round {self.stored.round}")
        engine.warm_up(min(self.config.warmup_rounds, end - engine.progress.round))
        self._deadline = Deadline() if self.session.world.is_root else None
        self._traffic.start()

    def run(self, engine: Engine) -> Outcome:
        """Run one engine to its end or to a stop; collective."""
        self._engine = engine
        if self._survives:
            self._outcome = run_surviving(self.session, engine, self._folder, self.sink)
        else:
            self._outcome = engine.run()
        return self._outcome

    def close(self) -> None:
        """Write down what is left and close the records; collective. What a stopped run did, its checkpoint has."""
        if self._outcome is not None and self._outcome.status == "finished":
            progress = self._outcome.progress
            with suppress(RanksLostError):  # the run is complete without it
                self._traffic.write(progress.round, progress.seconds_train)
        if isinstance(self.sink, RunSink):
            self.sink.close()


def _latest(session: Session, folder: CheckpointFolder) -> Any:
    """The newest whole checkpoint, found and checked by root, known to all."""
    problem, stored = None, None
    if session.world.is_root:
        try:
            stored = folder.latest(session.warn)
        except FedhpcError as error:
            problem = error
    session.world.agree(problem)
    return session.world.share(stored)
