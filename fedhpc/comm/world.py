"""The world of ranks as the rest of the package sees it: one rank and many ranks are the same code."""

from __future__ import annotations

import os
import socket
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from fedhpc.comm.launchers import singleton_problem, started_by_launcher
from fedhpc.errors import ConfigError, FedhpcError

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
Reduce = Literal["auto", "flat", "hierarchical"]


class RanksLostError(Exception):
    """Ranks died while others were in a collective with them; raised on all that live, where the world survives."""


class World(Protocol):
    """All ranks of one MPI job; buffers travel as buffers, only small metadata is pickled.

    Attributes:
        rank: this process, from 0.
        size: number of ranks.
        local_rank: place among the ranks that share this node's memory.
        local_size: how many ranks share this node's memory.
        host: name of the node, for messages only.
        is_root: whether this is rank 0.
        library: name and version of the MPI library; empty without one.
        calls: how often each collective ran; on one rank alone only those that move a buffer.
        moved: payload bytes this rank handed to each collective that moves a buffer.
        spent: seconds this rank spent in each collective, waiting for others included.
        inside: the collective this rank is in, empty outside; read by other threads.
        ticks: grows with every collective.
        survives: whether the loss of ranks raises `RanksLostError` instead of ending the job.
        lost: how many ranks were lost.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    host: str
    is_root: bool
    library: str
    calls: Counter[str]
    moved: Counter[str]
    spent: defaultdict[str, float]
    inside: str
    ticks: int
    survives: bool
    lost: int

    def broadcast_(self, buf: torch.Tensor) -> None:
        """Copy root's contiguous buffer to all ranks, in place."""

    def reduce_sum_(self, buf: torch.Tensor) -> None:
        """Add the contiguous buffers of all ranks, in place; only root's is meaningful afterwards."""

    def tune(self, chunk: int | None, reduce: Reduce) -> None:
        """Say how buffers travel; the same on all ranks.

        Args:
            chunk: elements per call of the MPI library; None: as many as are safe with every library.
            reduce: whether sums are formed on each node first; see `MpiWorld.reduces_by_node` for `auto`.
        """

    def gather(self, small: T) -> list[T] | None:
        """Collect one small picklable object per rank on root, in rank order; None elsewhere."""

    def share(self, small: T) -> T:
        """Give root's small picklable object to every rank."""

    def gather_node(self, small: T) -> list[T]:
        """Collect one small object from each rank of this node, on each of them, in local-rank order."""

    def exchange(self, sends: Mapping[int, torch.Tensor], receives: Mapping[int, torch.Tensor]) -> None:
        """Send one buffer to each rank named in `sends` and fill one from each rank in `receives`."""

    def barrier(self) -> None:
        """Wait for all ranks."""

    def agree(self, problem: BaseException | str | None) -> None:
        """Raise the same error on every rank if any rank has a problem; collective."""

    def recover(self) -> list[int]:
        """After `RanksLostError`: go on with those that live. Returns their former ranks, in the new order."""

    def abort(self, code: int) -> None:
        """End the whole job now."""

    def close(self) -> None:
        """Leave the world in order; collective."""


class SoloWorld:
    """One process without any MPI library."""

    rank = local_rank = 0
    size = local_size = 1
    is_root = True
    library = ""
    inside, ticks = "", 0
    survives, lost = False, 0

    def __init__(self) -> None:
        self.host = socket.gethostname()
        self.calls: Counter[str] = Counter()
        self.moved: Counter[str] = Counter()
        self.spent: defaultdict[str, float] = defaultdict(float)

    def broadcast_(self, buf: torch.Tensor) -> None:
        """Count the call and its bytes as on many ranks; there is nobody to send to."""
        self._count("broadcast", buf)

    def reduce_sum_(self, buf: torch.Tensor) -> None:
        """Count the call and its bytes as on many ranks; the sum over one rank is the buffer."""
        self._count("reduce", buf)

    def tune(self, chunk: int | None, reduce: Reduce) -> None:
        """Nothing travels."""

    def _count(self, name: str, buf: torch.Tensor) -> None:
        self.calls[name] += 1
        self.moved[name] += buf.numel() * buf.element_size()
        self.spent[name] += 0.0

    def gather(self, small: T) -> list[T] | None:
        """Return a list of one."""
        return [small]

    def share(self, small: T) -> T:
        """Return the object."""
        return small

    def gather_node(self, small: T) -> list[T]:
        """Return a list of one."""
        return [small]

    def exchange(self, sends: Mapping[int, torch.Tensor], receives: Mapping[int, torch.Tensor]) -> None:
        """Check that nobody else is named."""
        assert len(sends) + len(receives) == 0, "a world of one rank has no peers"

    def barrier(self) -> None:
        """Return at once."""

    def agree(self, problem: BaseException | str | None) -> None:
        """Raise the problem, if there is one."""
        if isinstance(problem, BaseException):
            raise problem
        if problem is not None:
            raise FedhpcError(problem)

    def recover(self) -> list[int]:
        """Nobody was there to be lost."""
        return [0]

    def abort(self, code: int) -> None:
        """End the process without clean-up."""
        os._exit(code)

    def close(self) -> None:
        """Return at once."""


def open_world() -> World:
    """Return the world this process was started in; mpi4py is imported only under a launcher.

    Raises:
        ConfigError: a launcher started several processes but MPI sees one rank, so that the launcher
            and the MPI library do not match and the job would run as that many separate copies.
    """
    world: World
    if started_by_launcher():
        from fedhpc.comm.mpi import MpiWorld

        world = MpiWorld()
    else:
        world = SoloWorld()
    if world.size == 1 and (problem := singleton_problem()):
        raise ConfigError(problem)
    return world
