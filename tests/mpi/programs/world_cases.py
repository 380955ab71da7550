"""What MpiWorld promises, checked by every rank; prints one line on root when all of it held."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import torch

from fedhpc.comm import mpi
from fedhpc.comm.mpi import MpiWorld
from fedhpc.errors import AgreedError


def check_collectives(world: MpiWorld) -> None:
    for dtype in (torch.float32, torch.float64, torch.int64):
        buf = torch.arange(2503, dtype=dtype) if world.is_root else torch.zeros(2503, dtype=dtype)
        world.broadcast_(buf)
        assert torch.equal(buf, torch.arange(2503, dtype=dtype))
    total = torch.full((2503,), float(world.rank + 1), dtype=torch.float64)
    world.reduce_sum_(total)
    if world.is_root:
        assert torch.equal(total, torch.full_like(total, world.size * (world.size + 1) / 2))
    gathered = world.gather({"rank": world.rank})
    assert (gathered == [{"rank": r} for r in range(world.size)]) if world.is_root else gathered is None
    assert world.share(f"from {world.rank}") == "from 0"
    assert world.gather_node(world.rank) == list(range(world.size))
    assert (world.local_rank, world.local_size) == (world.rank, world.size)


class DeviceBuffer:
    """A buffer on a device whose memory an MPI library must not touch: it can be copied to the host and back."""

    device = SimpleNamespace(type="cuda")

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values
        self.numel, self.element_size = values.numel, values.element_size

    def cpu(self) -> torch.Tensor:
        return self.values.clone()

    def copy_(self, host: torch.Tensor) -> None:
        self.values.copy_(host)


def check_staging(world: MpiWorld) -> None:
    """Buffers of a device go through the host, so no library needs to know about devices."""
    buf: Any = DeviceBuffer(torch.full((50,), 3.0 if world.is_root else 0.0))
    world.broadcast_(buf)
    assert torch.equal(buf.values, torch.full((50,), 3.0))
    world.reduce_sum_(buf)
    if world.is_root:
        assert torch.equal(buf.values, torch.full((50,), 3.0 * world.size))


class Noting:
    """A communicator that notes which calls it gets and does them."""

    def __init__(self, comm: Any) -> None:
        self.comm, self.calls = comm, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.calls.add(name)
        return getattr(self.comm, name)


def check_probe() -> None:
    """What is asked about device buffers are sums as well: there are libraries that send them and cannot add them."""
    noting = Noting(mpi.MPI.COMM_SELF)
    mpi.MPI, library = SimpleNamespace(COMM_SELF=noting, SUM=mpi.MPI.SUM), mpi.MPI  # type: ignore[misc]
    values = torch.arange(5.0)
    mpi.self_test(values)
    mpi.MPI = library  # type: ignore[misc]
    assert {"Bcast", "Allreduce"} <= noting.calls
    assert torch.equal(values, torch.arange(5.0))


def check_exchange(world: MpiWorld) -> None:
    """Every rank sends a buffer of its own length to the next and gets one from the one before."""
    if world.size == 1:
        world.exchange({}, {})
        return
    after, before = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    mine = torch.full((1000 + world.rank,), float(world.rank))
    got = torch.empty(1000 + before)
    world.exchange({after: mine}, {before: got})
    assert torch.equal(got, torch.full((1000 + before,), float(before)))


def check_sums_by_node() -> None:
    """Summing on each node first gives the same bytes, also in tiny chunks and with nodes of unequal size."""
    for node_size in (2, 3):
        world = MpiWorld(node_size=node_size)
        assert world.local_rank == world.rank % node_size
        nodes = set(world.gather((world.host, world.rank // node_size)) or [])
        assert len(nodes) == len({host for host, _ in nodes}), "one name for two nodes"
        assert len(nodes) == len({node for _, node in nodes}), "two names for one node"
        several = node_size < world.size
        assert world.reduces_by_node(1 << 16) == several
        assert not world.reduces_by_node(1 << 10), "two stages do not pay for a small buffer"
        grid = torch.randint(-(2**49), 2**49, (20_000,), generator=torch.Generator().manual_seed(world.rank))
        found = []
        for reduce, chunk in (("flat", None), ("hierarchical", None), ("hierarchical", 999), ("auto", None)):
            world.tune(chunk, reduce)  # type: ignore[arg-type]
            assert world.reduces_by_node(1) == (several and reduce == "hierarchical")
            buf = grid.double() * 2.0**-40
            world.reduce_sum_(buf)
            found.append(buf.numpy().tobytes())
        if world.is_root:
            assert len(set(found)) == 1


def check_counts(world: MpiWorld) -> None:
    """Calls, bytes and seconds are counted per collective; who waits for a late rank sees it in its seconds."""
    calls, moved, spent = world.calls.copy(), world.moved.copy(), dict(world.spent)
    if world.rank == world.size - 1:
        time.sleep(0.2)
    world.barrier()
    world.reduce_sum_(torch.zeros(100, dtype=torch.float64))
    assert world.calls - calls == {"barrier": 1, "reduce": 1}
    assert world.moved - moved == {"reduce": 800}
    waited = world.spent["barrier"] - spent.get("barrier", 0.0)
    assert world.rank == world.size - 1 or waited > 0.1
    assert world.spent["reduce"] > spent["reduce"]


def check_agree(world: MpiWorld) -> None:
    world.agree(None)
    last = world.size - 1
    problem = ValueError("the last rank's data are bad") if world.rank == last else None
    told = ""
    try:
        world.agree(problem)
    except AgreedError as error:
        told = str(error)
    assert "the last rank's data are bad" in told, "a problem of one rank did not reach all"
    assert last == 0 or f"rank {last}" in told


def main() -> None:
    for limit in (2**30, 1000, 7):
        world = MpiWorld(chunk_limit=limit)
        check_collectives(world)
        check_exchange(world)
        check_staging(world)
    check_probe()
    check_counts(world)
    check_sums_by_node()
    check_agree(world)
    world.close()
    if world.is_root:
        print(f"all held on {world.size}", flush=True)


if __name__ == "__main__":
    main()
