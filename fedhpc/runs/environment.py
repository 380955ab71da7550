"""What a run ran on, for environment.json: versions, hosts, devices, the state of the source tree."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fedhpc

_PACKAGES = ("torch", "torchvision", "numpy", "h5py", "mpi4py", "safetensors", "jsonargparse")
_JOB_VARIABLES = ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "CUDA_VISIBLE_DEVICES")


def describe_environment(ranks: Sequence[Mapping[str, Any]], mpi_library: str) -> dict[str, Any]:
    """Collect what a reader of the results needs to know about where they come from.

    Args:
        ranks: one mapping per rank (host, cores, threads, device).
        mpi_library: name and version of the MPI library, empty without one.
    """
    return {
        "fedhpc": fedhpc.__version__,
        "git": _git_state(),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "mpi": mpi_library,
        "job": {name: os.environ[name] for name in _JOB_VARIABLES if name in os.environ},
        "command": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "ranks": [dict(r) for r in ranks],
    }


def device_kind(label: str) -> str:
    """Kind of a rank's device by its label, of which the last word tells a GPU from others of its kind; or `CPU`."""
    return label.rpartition(" ")[0] or label


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_state() -> str | None:
    """Commit of the source tree this package runs from, with `-dirty` where it was changed; None if installed."""
    folder = Path(fedhpc.__file__).resolve().parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
