"""Runs the fedhpc command line, but rank 2 dies in round 9 and rank 1 while the others recover from that.

Usage: losing_twice.py WHERE WORDS..., with WHERE in the recovery: `agree` (on who is left) or `begin`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from fedhpc import cli
from fedhpc.comm.mpi import MpiWorld
from fedhpc.federated.engine import Engine

RANK = int(os.environ["OMPI_COMM_WORLD_RANK"])
PLACES = {"agree": (MpiWorld, "_use"), "begin": (Engine, "survive")}


def dying(method: Callable[..., Any], when: Callable[..., bool]) -> Callable[..., Any]:
    """The method, before which the process is killed if `when` says so of its arguments."""

    def wrapped(self: Any, *args: Any) -> Any:
        if when(self, *args):
            os.kill(os.getpid(), signal.SIGKILL)
        return method(self, *args)

    return wrapped


def main() -> None:
    """Put the deaths in place and run."""
    where, *words = sys.argv[1:]
    if RANK == 2:
        Engine._train = dying(Engine._train, lambda self, round, sent: round == 8)  # type: ignore[method-assign]
    if RANK == 1:
        owner, name = PLACES[where]
        setattr(owner, name, dying(getattr(owner, name), lambda *args: where != "agree" or hasattr(args[0], "size")))
    cli.main(words)


main()
