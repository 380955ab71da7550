"""Going on after ranks were lost, where the launcher and the MPI library let survivors live (Open MPI's ULFM)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedhpc.comm.checks import spans
from fedhpc.comm.world import RanksLostError, World
from fedhpc.errors import AgreedError

if TYPE_CHECKING:
    from fedhpc.commands._session import Session
    from fedhpc.federated.engine import Engine
    from fedhpc.federated.records import Sink
    from fedhpc.federated.state import Outcome
    from fedhpc.runs.checkpoint import CheckpointFolder, Stored


def cannot_survive(world: World) -> str | None:
    """Why `on_rank_loss: continue` will not work here, or None."""
    if world.size == 1 or world.survives:
        return None
    return (
        "on_rank_loss: continue has no effect here: it needs `mpirun --with-ft ulfm` of Open MPI 5; "
        "a lost rank will end the job, which can be resumed"
    )


class _Left:
    """Which ranks are left, by the numbers that they had when the job started."""

    def __init__(self, size: int) -> None:
        self.names = list(range(size))
        self.gone: list[int] = []
        """Lost ranks that nobody was told of yet: of several recoveries, where one was interrupted by the next loss."""

    def keep(self, kept: list[int]) -> None:
        """Drop those that are not among `kept`, former ranks in their new order."""
        self.gone += [name for rank, name in enumerate(self.names) if rank not in kept]
        self.names = [self.names[rank] for rank in kept]


def run_surviving(session: Session, engine: Engine, folder: CheckpointFolder, sink: Sink) -> Outcome:
    """Run to the end, redoing rounds in which ranks are lost; collective.

    Raises:
        AgreedError: the server's rank was lost; on every rank that is left.
    """
    left, lost = _Left(session.world.size), False
    while True:
        try:
            if lost:
                _go_on(session, engine, folder, sink, left)
            return engine.run()
        except RanksLostError:
            lost = True


def _go_on(session: Session, engine: Engine, folder: CheckpointFolder, sink: Sink, left: _Left) -> None:
    """Agree on who is left and where everything stands; a further loss in here starts it over."""
    world = session.world
    was_root, size = world.is_root, world.size
    kept = world.recover()
    if 0 not in kept or (world.is_root and not was_root):
        raise AgreedError("the server's rank was lost; the job ends, go on with --resume")
    if len(kept) == size:
        raise AgreedError("messages between ranks failed although no rank is lost; the job ends, go on with --resume")
    left.keep(kept)
    engine.rehome(kept)
    stored: Stored | None = None
    if world.is_root:
        stored = folder.latest(session.warn)
    stored = world.share(stored)
    clients = engine.survive(lambda wanted: stored.client_states(wanted) if stored else {})
    progress = engine.progress
    if world.is_root:
        kept_state = f"their state is that of round {stored.round}" if stored else "their state is lost"
        state = f", {kept_state}" if engine.states.names else ""
        session.warn(
            f"lost {spans(left.gone)}; {world.size} rank(s) redo round {progress.round + 1} without "
            f"{len(clients)} client(s){state}"
        )
    for rank in left.gone:
        sink.record("rank_lost", float(rank), "rank", progress.round, progress.seconds_train)
    for client in clients:
        sink.record("client_lost", 1.0, "count", progress.round, progress.seconds_train, client=client)
    left.gone = []
