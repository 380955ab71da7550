"""`fedhpc sweep` in which one rank stops taking steps in its first trial: hanging_trial.py RANK ARGS..."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from fedhpc import cli
from fedhpc.sweep.run_trial import Trial

_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")


def main() -> None:
    rank = next(int(os.environ[name]) for name in _RANK if name in os.environ)
    step = Trial.train_one_step

    def hang(self: Trial, *args: Any) -> None:
        while self.progress.step == 3:
            time.sleep(0.1)  # its other threads, the heartbeat among them, go on
        step(self, *args)

    if rank == int(sys.argv[1]):
        Trial.train_one_step = hang  # type: ignore[method-assign]
    cli.main(sys.argv[2:])


if __name__ == "__main__":
    main()
