"""Which device and how many threads each rank computes with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from fedhpc.comm.world import World
from fedhpc.errors import ConfigError


@dataclass(frozen=True)
class Pinning:
    """Where one rank computes.

    Attributes:
        cores: CPU cores this rank may use.
        threads: threads torch uses inside an operation.
        device: torch device name, such as `cpu` or `cuda:1`.
        label: the device as a person knows it (GPU name and UUID, or `CPU`).
        visible: labels of the GPUs this rank can see.
        given: what CUDA_VISIBLE_DEVICES names, as the scheduler or the user set it.
        fair: threads that would be this rank's share of the node's cores; 0 if not known.
    """

    rank: int
    host: str
    local_rank: int
    cores: int
    threads: int
    device: str
    label: str
    visible: tuple[str, ...] = ()
    given: str = ""
    fair: int = 0


def fair_threads(affinities: Sequence[frozenset[int]], local_rank: int) -> int:
    """Share the cores of a node: each core counts 1/(number of local ranks that may use it).

    Args:
        affinities: the core set of each local rank.
        local_rank: whose share is wanted.
    """
    users = {core: sum(core in a for a in affinities) for core in affinities[local_rank]}
    return max(1, int(sum(1 / n for n in users.values()) + 1e-9))


def choose_device(name: str, local_rank: int, num_gpus: int) -> str:
    """Turn `auto`, `cpu`, `cuda` or `cuda:N` into this rank's device.

    Raises:
        ConfigError: a GPU is asked for that is not visible.
    """
    if name == "cpu" or (name == "auto" and num_gpus == 0):
        return "cpu"
    if name in ("auto", "cuda"):
        if num_gpus == 0:
            raise ConfigError(
                "device.name is 'cuda' but torch sees no GPU (CUDA_VISIBLE_DEVICES?); use 'auto' or 'cpu'"
            )
        return f"cuda:{local_rank % num_gpus}"
    kind, _, index = name.partition(":")
    if kind != "cuda" or not index.isdigit():
        raise ConfigError(f"device.name is '{name}'; allowed: auto, cpu, cuda, cuda:N")
    if int(index) >= num_gpus:
        raise ConfigError(f"device.name is '{name}' but torch sees {num_gpus} GPU(s)")
    return name


def _wanted_threads() -> int | None:
    """OMP_NUM_THREADS where the user or the batch system set it to one number."""
    value = os.environ.get("OMP_NUM_THREADS", "")
    return int(value) if value.isdigit() and int(value) > 0 else None


def pin(world: World, name: str = "auto", threads: int | None = None, deterministic: bool = True) -> Pinning:
    """Choose and set this rank's device and thread count; collective over each node.

    MKL drops to one thread under mpirun, so the count is set explicitly. Imports torch.

    Raises:
        ConfigError: as `choose_device`.
    """
    affinity = (
        frozenset(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else frozenset(range(os.cpu_count() or 1))
    )
    fair = fair_threads(world.gather_node(affinity), world.local_rank)
    count = threads or _wanted_threads() or fair
    os.environ.setdefault("OMP_NUM_THREADS", str(count))  # read once, when torch is loaded
    if "OMP_WAIT_POLICY" not in os.environ:
        # Threads that spin for long starve each other where cores are shared (seen: 80 times slower).
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    torch.set_num_threads(count)
    # The switch of use_deterministic_algorithms, which also loads torch's compiler: longer than loading torch itself.
    torch.set_deterministic_debug_mode("error" if deterministic else "default")
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # costs a pass over every new tensor
    device = choose_device(name, world.local_rank, torch.cuda.device_count())
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "") if name != "cpu" else ""
    place = (world.rank, world.host, world.local_rank, len(affinity), count, device)
    if device == "cpu":
        return Pinning(*place, "CPU", given=given, fair=fair)
    torch.cuda.set_device(device)
    found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    visible = tuple(f"{p.name} {getattr(p, 'uuid', i)}" for i, p in enumerate(found))
    label = visible[torch.cuda.current_device()]
    return Pinning(*place, label, visible, given, fair)


def pinning_table(pinnings: Sequence[Pinning]) -> str:
    """A text table of all ranks; runs of ranks on large jobs are kept short by the caller."""
    rows = [("rank", "host", "cores", "threads", "device", "")]
    rows += [(str(p.rank), p.host, str(p.cores), str(p.threads), p.device, p.label) for p in pinnings]
    widths = [max(len(r[i]) for r in rows) for i in range(6)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows)


def warnings_for(pinnings: Sequence[Pinning]) -> list[str]:
    """Say what a careful person would notice in the table: shared GPUs, more threads than cores."""
    return [*thread_warnings(pinnings), *device_warnings(pinnings)]


def thread_warnings(pinnings: Sequence[Pinning]) -> list[str]:
    """More threads than cores, on a rank by itself or on all ranks of a node together."""
    found = []
    crowded: dict[tuple[str, int, int], list[int]] = {}
    for p in pinnings:
        if p.threads > p.cores:
            found.append(f"rank {p.rank} uses {p.threads} threads on {p.cores} core(s) of {p.host}")
        elif p.threads > p.fair > 0:
            crowded.setdefault((p.host, p.threads, p.fair), []).append(p.rank)
    for (host, threads, fair), ranks in crowded.items():
        found.append(
            f"{len(ranks)} rank(s) of {host} use {threads} threads each, {fair} would be their share of the cores; "
            "leave OMP_NUM_THREADS and device.threads unset, or ask for more cores per task"
        )
    return found


def device_warnings(pinnings: Sequence[Pinning]) -> list[str]:
    """GPUs that are shared, or given but not seen."""
    found = []
    by_device: dict[tuple[str, str], list[int]] = {}
    for p in pinnings:
        by_device.setdefault((p.host, p.device), []).append(p.rank)
    blind = [p for p in pinnings if p.given and p.device == "cpu"]
    if blind:
        found.append(
            f"{len(blind)} rank(s) were given GPU(s), rank {blind[0].rank} {blind[0].given}, but torch sees none; "
            "is this torch built for GPUs, and is there a driver?"
        )
    for (host, device), ranks in by_device.items():
        if device != "cpu" and len(ranks) > 1:
            found.append(f"{len(ranks)} ranks share {device} of {host}: {ranks[:8]}")
    return found
