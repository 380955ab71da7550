"""Whether HDF5 works in a directory as this package uses it; for `fedhpc doctor`."""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path

from fedhpc.data.hdf5 import open_hdf5
from fedhpc.errors import DatasetError


def describe_hdf5() -> str:
    """Versions of h5py and of the library it brings."""
    import h5py

    return f"h5py {h5py.version.version}, HDF5 {h5py.version.hdf5_version}, parallel: {h5py.get_config().mpi}"


def check_hdf5(folder: Path) -> tuple[bool, str]:
    """Write a file, read it while another handle has it open, and see whether the file system knows locks.

    Returns:
        Whether shards can be written and read there, and one line about it.
    """
    import numpy as np

    try:
        with tempfile.TemporaryDirectory(prefix=".fedhpc-doctor-", dir=folder) as name:
            file = Path(name) / "probe.h5"
            with open_hdf5(file, "w") as handle:
                handle["values"] = np.arange(1000)
            with open_hdf5(file) as one, open_hdf5(file) as other:
                same = bool((one["values"][()] == other["values"][()]).all())
            locks = _knows_locks(Path(name) / "lock")
    except (OSError, DatasetError) as error:
        return False, f"{folder}: {error}"
    return (
        same,
        f"{folder}: written and read without HDF5's locks; the file system {'has' if locks else 'has no'} locks",
    )


def _knows_locks(file: Path) -> bool:
    with file.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True
