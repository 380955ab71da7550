"""`--exit-file`: how a batch script learns that a command has come to its end, since launchers' exit codes lie."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedhpc.commands._session import Session
from fedhpc.errors import STOPPED_EARLY, FedhpcError
from fedhpc.runs.rundir import write_atomically


def add_exit_file(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument(
        "--exit-file", metavar="FILE", type=Path, help="for batch scripts: write the exit code here, once at the end"
    )


def tell_exit(session: Session, path: Path | None, code: int) -> int:
    """Write a command's exit code, unless there is more to do for the same command; returns the code.

    Each job writes its own file. One mark in the directory that several jobs share could not tell that this job has
    nothing left to do while others still work.

    Raises:
        FedhpcError: the file cannot be written.
    """
    if path is not None and session.world.is_root and code != STOPPED_EARLY:
        try:
            write_atomically(path, f"{code}\n")
        except OSError as error:
            raise FedhpcError(f"{path}: cannot be written ({error.strerror})") from None
    return code
