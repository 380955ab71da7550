"""MpiWorld: collectives on buffers over mpi4py."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import mpi4py

mpi4py.rc.thread_level = "serialized"
from mpi4py import MPI  # noqa: E402

from fedhpc.comm.process import let_through  # noqa: E402
from fedhpc.comm.sockets import SocketGuard  # noqa: E402
from fedhpc.comm.world import RanksLostError, Reduce  # noqa: E402
from fedhpc.errors import FAILED, AgreedError  # noqa: E402

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

_LOST = (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED, MPI.ERR_IN_STATUS)
"""Error classes that a lost rank gives; the last comes from waiting for several messages at once."""
CHUNK_LIMIT = 2**30
"""Elements per MPI call: counts above 2^31 - 1 fail in MPI 3 libraries (Open MPI 5.0 among them)."""
_WORTH_A_STAGE = 1 << 16
"""Bytes from which `auto` sums on each node first: below, a reduce costs latency, and two stages have more of it."""


class MpiWorld:
    """All ranks of MPI_COMM_WORLD; see `World` for the contract.

    Args:
        chunk_limit: largest number of elements handed to one MPI call; longer buffers go in pieces.
        node_size: ranks per node, for tests; None: those that share memory.
    """

    def __init__(self, chunk_limit: int = CHUNK_LIMIT, node_size: int | None = None) -> None:
        # That a library has the calls proves nothing; mpirun --with-ft ulfm sets this for the ranks.
        self.survives = os.environ.get("OMPI_MCA_mpi_ft_enable") == "1"  # noqa: SIM112
        self._node_size = node_size
        self._reduce: Reduce = "auto"
        self.calls: Counter[str] = Counter()
        self.moved: Counter[str] = Counter()
        self.spent: defaultdict[str, float] = defaultdict(float)
        self._use(MPI.COMM_WORLD.Dup())
        self.host = self._name_of_node()
        self.library: str = MPI.Get_library_version().strip().rstrip("\x00").split(",")[0]
        self.chunk_limit = chunk_limit
        self.inside = ""
        self.ticks = 0
        self.lost = 0
        if self.survives and self.local_size < self.size:
            SocketGuard().start()  # a host that vanishes is otherwise noticed by nobody

    def _use(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._comm.Set_errhandler(MPI.ERRORS_RETURN)  # which mpi4py turns into exceptions
        self.rank: int = self._comm.Get_rank()
        if self._node_size is None:
            self._node = self._comm.Split_type(MPI.COMM_TYPE_SHARED, self.rank)
        else:
            self._node = self._comm.Split(self.rank // self._node_size, self.rank)
        self.size: int = self._comm.Get_size()
        self.local_rank: int = self._node.Get_rank()
        self.local_size: int = self._node.Get_size()
        self.is_root = self.rank == 0
        self._leaders = self._find_leaders()

    def _name_of_node(self) -> str:
        """The host's name, numbered where several nodes have the same one, as containers may: it tells them apart."""
        name, first = MPI.Get_processor_name(), self._node.bcast(self.rank)
        same = sorted({f for n, f in self._comm.allgather((name, first)) if n == name})
        return name if len(same) == 1 else f"{name}#{same.index(first) + 1}"

    def _find_leaders(self) -> MPI.Comm | None:
        """The first ranks of all nodes as a communicator of their own; None where sums by node make no sense.

        Where ranks may be lost there is none: a loss that one communicator shows would have to be made known to all
        of them, or those in the others wait for ever.
        """
        first = self.local_rank == 0
        num_nodes = 0 if self.survives else self._comm.allreduce(int(first))
        self._by_node = 1 < num_nodes < self.size
        return self._comm.Split(0 if first else MPI.UNDEFINED, self.rank) if self._by_node else None

    def tune(self, chunk: int | None, reduce: Reduce) -> None:
        """Say how buffers travel; the same on all ranks."""
        self.chunk_limit = chunk or CHUNK_LIMIT
        self._reduce = reduce

    def reduces_by_node(self, num_bytes: int) -> bool:
        """Whether a sum of that size is formed on each node first and then between nodes; the same on all ranks.

        Then one buffer leaves each node, whatever tree the library would choose for all ranks. `auto` does so from
        64 KiB on. It needs several nodes, several ranks on at least one of them, and no survivors' mode.
        """
        return self._by_node and (
            self._reduce == "hierarchical" or (self._reduce == "auto" and num_bytes >= _WORTH_A_STAGE)
        )

    def recover(self) -> list[int]:
        """Go on with the ranks that live; collective over them. Returns their former ranks, in the new order."""
        kept = list(range(self.size))
        while True:
            old = self._comm
            if not old.Is_revoked():
                old.Revoke()
            new: MPI.Intracomm = old.Shrink()  # type: ignore[assignment]
            ranks = MPI.Group.Translate_ranks(new.Get_group(), list(range(new.Get_size())), old.Get_group())
            self.lost += len(kept) - len(ranks)
            kept = [kept[rank] for rank in ranks]
            with suppress(RanksLostError), self._in("recovery"):  # lost meanwhile: once more, from the new ones
                self._use(new)
                return kept

    @contextmanager
    def _in(self, name: str, sent: Iterable[torch.Tensor] = ()) -> Iterator[None]:
        """Count and time a collective, and mark it, so that a watching thread can tell waiting from working."""
        self.calls[name] += 1
        if size := sum(buf.numel() * buf.element_size() for buf in sent):
            self.moved[name] += size
        self.inside = name
        self.ticks += 1
        began = time.perf_counter()
        try:
            yield
        except MPI.Exception as error:
            if not self.survives or error.Get_error_class() not in _LOST:
                raise
            if not self._comm.Is_revoked():
                self._comm.Revoke()  # so that nobody waits for those who noticed
            raise RanksLostError(f"in {name}: {error.Get_error_string()}") from error
        finally:
            self.spent[name] += time.perf_counter() - began
            self.inside = ""
            self.ticks += 1

    def _pieces(self, buf: torch.Tensor) -> Iterator[Any]:
        """Yield numpy views of at most `chunk_limit` elements of a contiguous host tensor."""
        assert buf.is_contiguous(), "collectives take contiguous buffers"
        flat = buf.detach().view(-1).numpy()
        for start in range(0, flat.size, self.chunk_limit):
            yield flat[start : start + self.chunk_limit]

    def broadcast_(self, buf: torch.Tensor) -> None:
        """Copy root's contiguous buffer to all ranks, in place; device tensors are staged through the host."""
        host = buf if buf.device.type == "cpu" else buf.cpu()
        with self._in("broadcast", [buf]):
            for piece in self._pieces(host):
                self._comm.Bcast(piece, root=0)
        if host is not buf:
            buf.copy_(host)

    def reduce_sum_(self, buf: torch.Tensor) -> None:
        """Add the buffers of all ranks on root, in place; device tensors are staged through the host."""
        host = buf if buf.device.type == "cpu" else buf.cpu()
        stages = [self._node, self._leaders] if self.reduces_by_node(buf.numel() * buf.element_size()) else [self._comm]
        with self._in("reduce", [buf]):
            for piece in self._pieces(host):
                for comm in filter(None, stages):
                    _sum_on_first(comm, piece)
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
        with self._in("exchange", sends.values()):
            requests = []
            for peer, buf in sorted(receives.items()):
                requests += [self._comm.Irecv(piece, source=peer, tag=7) for piece in self._pieces(buf)]
            for peer, buf in sorted(sends.items()):
                requests += [self._comm.Isend(piece, dest=peer, tag=7) for piece in self._pieces(buf)]
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
        with self._in("agree"):
            found = [(r, *p) for r, p in enumerate(self._comm.allgather(report)) if p is not None]
        rank, message, code = found[0]
        where = "" if rank == 0 or len(found) == self.size else f"rank {rank}: "
        more = f" (and {len(found) - 1} other ranks)" if 1 < len(found) < self.size else ""
        raise AgreedError(f"{where}{message}{more}", code)

    def abort(self, code: int) -> None:
        """End the whole job now, with a non-zero exit code; what was printed has reached the launcher before."""
        let_through(sys.stdout, sys.stderr)
        self._comm.Abort(code)

    def close(self) -> None:
        """Wait for all ranks, so that none is killed while another still saves."""
        try:
            self.barrier()
        except RanksLostError:
            self.lost += 1  # nothing is left to do; MPI's own end would wait for them


def _sum_on_first(comm: MPI.Comm, values: Any) -> None:
    """Add arrays on the first rank of a communicator, in place there."""
    if comm.Get_rank() == 0:
        comm.Reduce(MPI.IN_PLACE, values, op=MPI.SUM, root=0)
    else:
        comm.Reduce(values, None, op=MPI.SUM, root=0)


def self_test(values: torch.Tensor) -> None:
    """Hand a buffer, on whatever device, to the library's calls within this process; values stay what they are."""
    comm = MPI.COMM_SELF
    received = values.clone()
    comm.Sendrecv(values, dest=0, recvbuf=received, source=0)
    comm.Bcast(received, root=0)
    comm.Allreduce(received, values, op=MPI.SUM)
