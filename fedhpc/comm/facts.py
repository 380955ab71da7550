"""What a rank knows about itself that should be the same, or fit together, on all ranks."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import fedhpc

if TYPE_CHECKING:
    from fedhpc.comm.world import World

_PACKAGES = ("torch", "numpy", "mpi4py", "h5py")
SETTINGS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "OPENBLAS_CORETYPE",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
    "HDF5_USE_FILE_LOCKING",
)
"""Variables that change results or speed; a launcher that starts ranks by ssh passes on none of them by itself."""


@dataclass(frozen=True)
class RankFacts:
    """What one rank knows about itself.

    Attributes:
        command: the command line, without the program's own path.
        settings: values of the environment variables that matter (None: not set).
        cores: CPU cores this rank may use.
        num_cores: CPU cores of its node that the job may use, also where this rank is bound to some of them.
        clock: wall-clock time at a moment that all ranks share.
        software: versions of the packages that matter, and what tells one source tree from another.
        python: path of the interpreter.
        processor: model of the CPU; from the first rank of each node only.
    """

    rank: int
    host: str
    command: tuple[str, ...]
    settings: tuple[str | None, ...]
    cores: frozenset[int]
    num_cores: int
    clock: float
    software: tuple[tuple[str, str], ...]
    python: str
    processor: str = ""


def facts_of(world: World) -> RankFacts:
    """Collect this rank's facts; collective, since clocks are read at the same moment."""
    software, processor = _software(_source_sum(world)), _processor() if world.local_rank == 0 else ""
    world.barrier()
    return RankFacts(
        world.rank,
        world.host,
        tuple(sys.argv[1:]),
        tuple(os.environ.get(name) for name in SETTINGS),
        _cores_of(0),
        _num_cores(),
        time.time(),
        software,
        sys.executable,
        processor,
    )


def _software(source: str) -> tuple[tuple[str, str], ...]:
    found = {"fedhpc": fedhpc.__version__, "fedhpc's source": source, "Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    return tuple(found.items())


def _source_sum(world: World) -> str:
    """The sum of the package this rank runs; of the ranks of a node that share a folder one reads it; collective."""
    folder = Path(fedhpc.__file__).parent
    folders = world.gather_node(str(folder))
    reader = folders.index(str(folder))
    return world.gather_node(source_sum(folder) if reader == world.local_rank else "")[reader]


def source_sum(folder: Path) -> str:
    """A short sum over names and contents of a folder's Python files."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        if path.name.startswith(".") or not path.is_file():  # an editor's lock is a link to nowhere
            continue
        content = path.read_bytes()
        total.update(f"{path.relative_to(folder)} {len(content)}\n".encode() + content)
    return total.hexdigest()[:12]


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as handle:
            return next((line.partition(":")[2].strip() for line in handle if line.startswith("model name")), "")
    except OSError:
        return ""


def _cores_of(process: int) -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(process))
    return frozenset(range(os.cpu_count() or 1))


def _num_cores() -> int:
    """What the launcher may use before it binds us: container and batch system may allow less than there is."""
    cores = len(_cores_of(0) | _cores_of(os.getppid()))
    given = os.environ.get("SLURM_CPUS_ON_NODE", "")
    return max(len(_cores_of(0)), min(cores, int(given)) if given.isdigit() else cores)
