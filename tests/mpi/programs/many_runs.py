"""Runs many configurations in one MPI job, since a bare start costs seconds.

Usage: many_runs.py FOLDER [--resume], where FOLDER/cases.json maps a name to [config file, overrides]; the run of each
goes to FOLDER/<name>-<number of ranks>. What a run prints is left to it; the exit code is the worst of all.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fedhpc.commands._federate import federate
from fedhpc.commands._session import Session, in_session
from fedhpc.commands.run import shared_config


def body(session: Session) -> int:
    folder = Path(sys.argv[1])
    worst, resume = 0, "--resume" in sys.argv
    for name, (config, overrides) in json.loads((folder / "cases.json").read_text()).items():
        resolved = shared_config(session, config, overrides)
        worst = max(worst, federate(session, resolved, folder / f"{name}-{session.world.size}", resume=resume))
    return worst


if __name__ == "__main__":
    sys.exit(in_session(body, debug=True))
