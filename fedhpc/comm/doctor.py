"""Measurements for `fedhpc doctor`: what collectives cost here, and whether they are right."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fedhpc.comm.checks import spans

if TYPE_CHECKING:
    from fedhpc.comm.world import World

State = Literal["ok", "warning", "failed", "skipped"]
_MOST_READ = 1 << 28
_BLOCK = 1 << 22
_BY_MPIRUN = "PRTE_LAUNCHED"
"""Variable that Open MPI 5's daemons set for the ranks they start."""


@dataclass(frozen=True)
class Verdict:
    """One check: its name, how it went, and one line about it."""

    name: str
    state: State
    text: str


@dataclass(frozen=True)
class Cost:
    """Seconds of one collective with one size of buffer, on root: median and slowest."""

    name: str
    bytes: int
    median: float
    worst: float

    @property
    def text(self) -> str:
        """One line."""
        speed = f", {self.bytes / self.median / 1e6:.0f} MB/s" if self.bytes > 1 << 16 else ""
        size = f"{self.bytes / 1e6:.1f} MB" if self.bytes > 1 << 16 else f"{self.bytes} bytes"
        what = f"{self.name} of {size}" if self.bytes else self.name
        return f"{what}: median {_time(self.median)}, slowest {_time(self.worst)}{speed}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


def measure_collectives(world: World, megabytes: float) -> tuple[list[Cost], list[str]]:
    """Time barrier, broadcast, sum and ring exchange, small and model-sized; collective.

    Returns:
        The costs, and what came back wrong on this rank.
    """
    import torch

    costs, wrong = [_time_of(world, "barrier", 0, 20, world.barrier)], []
    for numel, repeats in ((1, 20), (max(1, int(megabytes * 1e6 / 8)), 5)):
        buf = torch.zeros(numel, dtype=torch.float64)

        def broadcast(buf: torch.Tensor = buf) -> None:
            buf.fill_(7.0 if world.is_root else 0.0)
            world.broadcast_(buf)

        def reduce(buf: torch.Tensor = buf) -> None:
            buf.fill_(world.rank + 1.0)
            world.reduce_sum_(buf)

        costs.append(_time_of(world, "broadcast", numel * 8, repeats, broadcast))
        if not bool((buf == 7.0).all()):
            wrong.append(f"rank {world.rank}: a broadcast of {numel} numbers came back wrong")
        costs.append(_time_of(world, "sum", numel * 8, repeats, reduce))
        if world.is_root and not bool((buf == world.size * (world.size + 1) / 2).all()):
            wrong.append(f"a sum of {numel} numbers came back wrong")
        costs += _ring(world, numel, repeats, wrong)
    return costs, wrong


def _ring(world: World, numel: int, repeats: int, wrong: list[str]) -> list[Cost]:
    import torch

    if world.size == 1:
        return []
    mine = torch.full((numel,), float(world.rank), dtype=torch.float64)
    got = torch.empty_like(mine)
    left, right = (world.rank - 1) % world.size, (world.rank + 1) % world.size
    cost = _time_of(world, "ring", numel * 8, repeats, lambda: world.exchange({right: mine}, {left: got}))
    if not bool((got == left).all()):
        wrong.append(f"rank {world.rank}: what rank {left} sent came back wrong")
    return [cost]


def _time_of(world: World, name: str, size: int, repeats: int, call: Callable[[], None]) -> Cost:
    call()  # connections are made by the first
    seconds = []
    for _ in range(repeats):
        world.barrier()
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return Cost(name, size, statistics.median(seconds), max(seconds))


def host_loss(num_hosts: int, survives: bool, environment: Mapping[str, str]) -> Verdict:
    """What happens when a whole host vanishes, which this launch decides; none of it can be changed once ranks run.

    Args:
        num_hosts: that the ranks are on.
        survives: whether survivors of a loss can go on.
        environment: variables of a rank.
    """
    name = "lost hosts"
    if num_hosts < 2:
        return Verdict(name, "skipped", "all ranks are on one host")
    if survives:
        text = "survivors go on, if mpirun has --prtemca oob_tcp_keepalive_time 0 (else they are ended after 8 minutes)"
        return Verdict(name, "ok", f"{text}; mpirun may then wait on when all is `done`")
    if "SLURM_JOB_ID" in environment or "FLUX_JOB_ID" in environment:
        return Verdict(name, "ok", "the scheduler ends or requeues the job; go on with --resume")
    if _BY_MPIRUN in environment:
        keepalive = "export PRTE_MCA_plm_ssh_args='-o ServerAliveInterval=5 -o ServerAliveCountMax=6' before it"
        return Verdict(name, "ok", f"mpirun over ssh waits for ever unless you {keepalive}, as scripts of submit do")
    return Verdict(name, "ok", "where nobody else notices, the ranks do, as a hang: `hang_seconds`")


def read_speed(file: Path) -> tuple[float, int]:
    """Megabytes per second of reading the start of a file past the page cache where the system lets us, and bytes."""
    handle = os.open(file, os.O_RDONLY)
    try:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        start, total = time.perf_counter(), 0
        while total < _MOST_READ and (block := os.read(handle, _BLOCK)):
            total += len(block)
        return total / max(time.perf_counter() - start, 1e-9) / 1e6, total
    finally:
        os.close(handle)


def nearest_existing(path: Path) -> Path:
    """The path itself or the nearest of its parents that is there: where a run would begin to make directories."""
    return next((p for p in (path.absolute(), *path.absolute().parents) if os.path.exists(p)), Path("/"))


def writing_problems(world: World, place: Path) -> list[str]:
    """Why some ranks cannot write into a directory, one line for each reason, on root; collective."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for found in world.gather((world.rank, world.host, _writing_problem(place))) or []:
        rank, host, why = found
        if why is not None:
            groups.setdefault(why, []).append((rank, host))
    texts = []
    for why, ranks in groups.items():
        hosts = sorted({host for _, host in ranks})
        where = hosts[0] if len(hosts) == 1 else f"{hosts[0]} and {len(hosts) - 1} more host(s)"
        texts.append(f"{place}: {why}, says {spans(rank for rank, _ in ranks)} on {where}; choose another --out")
    return texts


def _writing_problem(place: Path) -> str | None:
    """What keeps this process from writing there; a trial, as permissions do not tell all."""
    if not os.path.isdir(place):  # as Path.is_dir, which raises where a parent may not be searched
        return "is a file, no directory" if os.path.exists(place) else "is not there"
    try:
        with tempfile.TemporaryFile(dir=place) as handle:
            handle.write(b"0")
    except OSError as error:
        return f"cannot be written ({error.strerror})"
    return None
