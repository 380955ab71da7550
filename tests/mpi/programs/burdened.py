"""`fedhpc run` whose ranks start processes as loaders of data do, and whose root saves slowly: burdened.py ARGS...

Each process says in a file of the working directory, `child-RANK`, whether it has MPI.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

from fedhpc import cli


def load_samples(place: str) -> None:
    """What a loader's process would do: import the parts that read data, and finish."""
    import fedhpc.data.shards  # noqa: F401

    Path(place).write_text("MPI is loaded" if "mpi4py" in sys.modules else "no MPI")


def main() -> None:
    import safetensors.torch

    from fedhpc.commands import _federate

    save, finish = safetensors.torch.save_file, _federate._finish

    def save_slowly(*args: Any, **options: Any) -> None:
        time.sleep(1)
        save(*args, **options)

    def start_a_process(session: Any, *args: Any) -> None:
        safetensors.torch.save_file = save_slowly  # from here on: it is the final model
        child = multiprocessing.get_context("spawn").Process(target=load_samples, args=(f"child-{session.world.rank}",))
        child.start()
        child.join(20)
        finish(session, *args)

    _federate._finish = start_a_process
    os.environ["TZ"] = f"RANK{os.environ.get('OMPI_COMM_WORLD_RANK', '0')}"  # names with the time differ by rank
    time.tzset()
    cli.main(sys.argv[1:])


if __name__ == "__main__":
    main()
