"""Between the engine's state at a round border and the files of a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from fedhpc.comm.world import World
from fedhpc.commands._session import disk_problem
from fedhpc.commands._traffic import TrafficLog
from fedhpc.errors import FedhpcError
from fedhpc.federated.engine import Engine
from fedhpc.federated.state import Progress, Snapshot
from fedhpc.runs.checkpoint import CheckpointFolder, Stored
from fedhpc.runs.records import RecordWriter


class RunSaver:
    """Writes checkpoints of one run; collective.

    Args:
        world: the ranks.
        folder: where checkpoints go.
        writer: root's records, whose length a checkpoint remembers; None elsewhere.
        traffic: is written down first, so that the checkpoint's records have it; None: nothing is.

    Attributes:
        longest: seconds of the longest save.
    """

    def __init__(
        self,
        world: World,
        folder: CheckpointFolder,
        writer: RecordWriter | None,
        traffic: TrafficLog | None = None,
    ) -> None:
        self._world = world
        self._folder = folder
        self._writer = writer
        self._traffic = traffic
        self.longest = 0.0

    def save(self, snapshot: Snapshot) -> None:
        """See `federated.engine.Saver`. A rank that cannot write makes all ranks fail; older checkpoints stay."""
        began, round, states = time.monotonic(), snapshot.progress.round, snapshot.states
        if self._traffic is not None:
            self._traffic.write(round, snapshot.progress.seconds_train)
        self._together(lambda: self._folder.begin(round) if self._world.is_root else None)
        mine = {client: states.flat(client) for client in states.clients()}
        entry = self._together(lambda: self._folder.add_clients(round, self._world.rank, mine))
        entries = self._world.gather(entry)
        if snapshot.server is not None and entries is not None and self._writer is not None:
            server = snapshot.server
            tensors = {f"vector.{name}": v for name, v in server.vectors.items()}
            tensors |= {"avg_selected": server.avg_selected, "buffers": server.buffers, "counters": server.counters}
            if server.avg_all is not None:
                tensors["avg_all"] = server.avg_all
            tensors["costs"] = torch.from_numpy(snapshot.costs.seconds.copy())
            meta = {"progress": asdict(snapshot.progress), "metrics_bytes": self._writer.offset()}
            with self._writing():
                self._folder.finish(round, tensors, [e for e in entries if e], meta)
        self.longest = max(self.longest, time.monotonic() - began)

    def _together(self, work: Callable[[], Any]) -> Any:
        """Do something that touches the disk; if it fails on one rank it fails on all."""
        problem, result = None, None
        try:
            with self._writing():
                result = work()
        except FedhpcError as error:
            problem = error
        self._world.agree(problem)
        return result

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Name what cannot be written, and say how the run goes on."""
        try:
            yield
        except OSError as error:
            raise FedhpcError(f"cannot write a checkpoint: {disk_problem(error, self._folder.path)}") from error


def restore(world: World, engine: Engine, stored: Stored | None) -> int:
    """Put a stored state into a fresh engine, on every rank; returns the length of the records that belong to it.

    Args:
        world: the ranks.
        engine: built from the same configuration.
        stored: the checkpoint to go on from, known to every rank.
    """
    if stored is None:
        return 0
    saved = stored.meta["progress"]
    reached = saved["reached"]
    engine.progress = Progress(**{**saved, "reached": tuple(reached) if reached else None})
    for client, flat in stored.client_states(engine.placement.at_home(world.rank)).items():
        engine.states.put(client, flat)
    costs = torch.full((len(engine.costs.seconds),), float("nan"), dtype=torch.float64)
    if engine.server is not None:
        tensors = stored.server()
        engine.server.vectors = {
            name.removeprefix("vector."): t for name, t in tensors.items() if name.startswith("vector.")
        }
        engine.server.avg_selected = tensors["avg_selected"]
        engine.server.avg_all = tensors.get("avg_all")
        engine.server.buffers, engine.server.counters = tensors["buffers"], tensors["counters"]
        costs.copy_(tensors["costs"])
    world.broadcast_(costs)
    engine.costs.seconds = np.array(costs.numpy())
    return int(stored.meta["metrics_bytes"])
