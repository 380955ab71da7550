"""MpiWorld: collectives on buffers over mpi4py."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import mpi4py

mpi4py.rc.thread_level = "serialized"
from mpi4py import MPI  # noqa: E402

from fedhpc.errors import FAILED, AgreedError  # noqa: E402

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

CHUNK_LIMIT = 2**30
"""Elements per MPI call: counts above 2^31 - 1 fail in MPI 3 libraries (Open MPI 5.0 among them)."""


class MpiWorld:
    """All ranks of MPI_COMM_WORLD; see `World` for the contract.

    Args:
        chunk_limit: largest number of elements handed to one MPI call; longer buffers go in pieces.
    """

    def __init__(self, chunk_limit: int = CHUNK_LIMIT) -> None:
        self._comm = MPI.COMM_WORLD.Dup()
        self._node = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.rank: int = self._comm.Get_rank()
        self.size: int = self._comm.Get_size()
        self.local_rank: int = self._node.Get_rank()
        self.local_size: int = self._node.Get_size()
        self.host: str = MPI.Get_processor_name()
        self.is_root = self.rank == 0
        self.library: str = MPI.Get_library_version().strip().rstrip("\x00").split(",")[0]
        self.calls: Counter[str] = Counter()
        self.moved: Counter[str] = Counter()
        self.chunk_limit = chunk_limit
        self.inside = ""
        self.ticks = 0

    @contextmanager
    def _in(self, name: str) -> Iterator[None]:
        """Mark a collective, so that a watching thread can tell waiting from working."""
        self.inside = name
        self.ticks += 1
        try:
            yield
        finally:
            self.inside = ""
            self.ticks += 1

    def _pieces(self, buf: torch.Tensor) -> Iterator[Any]:
        """Yield numpy views of at most `chunk_limit` elements of a contiguous host tensor."""
        assert buf.is_contiguous(), "collectives take contiguous buffers"
        flat = buf.detach().view(-1).numpy()
        for start in range(0, flat.size, self.chunk_limit):
            yield flat[start : start + self.chunk_limit]

    def _count(self, name: str, buf: torch.Tensor) -> None:
        self.calls[name] += 1
        self.moved[name] += buf.numel() * buf.element_size()

    def broadcast_(self, buf: torch.Tensor) -> None:
        """Copy root's contiguous buffer to all ranks, in place; device tensors are staged through the host."""
        self._count("broadcast", buf)
        host = buf if buf.device.type == "cpu" else buf.cpu()
        with self._in("broadcast"):
            for piece in self._pieces(host):
                self._comm.Bcast(piece, root=0)
        if host is not buf:
            buf.copy_(host)

    def reduce_sum_(self, buf: torch.Tensor) -> None:
        """Add the buffers of all ranks on root, in place; device tensors are staged through the host."""
        self._count("reduce", buf)
        host = buf if buf.device.type == "cpu" else buf.cpu()
        with self._in("reduce"):
            for piece in self._pieces(host):
                if self.is_root:
                    self._comm.Reduce(MPI.IN_PLACE, piece, op=MPI.SUM, root=0)
                else:
                    self._comm.Reduce(piece, None, op=MPI.SUM, root=0)
        if host is not buf:
            buf.copy_(host)

    def gather(self, small: T) -> list[T] | None:
        """Collect one small picklable object per rank on root."""
        with self._in("gather"):
            return self._comm.gather(small, root=0)

    def share(self, small: T) -> T:
        """Give root's small picklable object to every rank."""
        with self._in("share"):
            return self._comm.bcast(small, root=0)

    def gather_node(self, small: T) -> list[T]:
        """Collect one small object from each rank of this node, on each of them."""
        with self._in("gather on the node"):
            return self._node.allgather(small)

    def exchange(self, sends: Mapping[int, torch.Tensor], receives: Mapping[int, torch.Tensor]) -> None:
        """Post all receives, then all sends, and wait; peers exchange equal numbers of pieces."""
        requests = []
        for peer, buf in sorted(receives.items()):
            requests += [self._comm.Irecv(piece, source=peer, tag=7) for piece in self._pieces(buf)]
        for peer, buf in sorted(sends.items()):
            self._count("exchange", buf)
            requests += [self._comm.Isend(piece, dest=peer, tag=7) for piece in self._pieces(buf)]
        with self._in("exchange"):
            MPI.Request.Waitall(requests)

    def barrier(self) -> None:
        """Wait for all ranks."""
        with self._in("barrier"):
            self._comm.Barrier()

    def agree(self, problem: BaseException | str | None) -> None:
        """Raise the same error on every rank if any rank has a problem."""
        with self._in("agree"):
            bad = self._comm.allreduce(problem is not None, op=MPI.LOR)
        if not bad:
            return
        report = None if problem is None else (str(problem), getattr(problem, "exit_code", FAILED))
        found = [(r, *p) for r, p in enumerate(self._comm.allgather(report)) if p is not None]
        rank, message, code = found[0]
        where = "" if rank == 0 or len(found) == self.size else f"rank {rank}: "
        more = f" (and {len(found) - 1} other ranks)" if 1 < len(found) < self.size else ""
        raise AgreedError(f"{where}{message}{more}", code)

    def abort(self, code: int) -> None:
        """End the whole job now, with a non-zero exit code."""
        sys.stdout.flush()
        sys.stderr.flush()
        self._comm.Abort(code)

    def close(self) -> None:
        """Wait for all ranks, so that none is killed while another still saves."""
        self._comm.Barrier()


def self_test(values: torch.Tensor) -> None:
    """Hand a buffer, on whatever device, to the library's calls within this process; values stay what they are."""
    comm = MPI.COMM_SELF
    received = values.clone()
    comm.Sendrecv(values, dest=0, recvbuf=received, source=0)
    comm.Bcast(received, root=0)
    comm.Allreduce(received, values, op=MPI.SUM)
