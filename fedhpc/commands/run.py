"""`fedhpc run`: one federated run."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedhpc.commands._configs import before_copy, load_run, run_from
from fedhpc.commands._federate import federate
from fedhpc.commands._session import Session, in_session
from fedhpc.config import RunConfig
from fedhpc.errors import DONE, ConfigError, FedhpcError
from fedhpc.runs.rundir import default_path

TAKES_OVERRIDES = True
HELP = """Run one federation as a YAML file says, on as many ranks as the launcher starts.

example:
  mpirun -n 4 fedhpc run configs/smoke/fedavg.yaml --local.lr 0.05 --out runs/first

Any key of the configuration can be given as an option: --section.key value. `fedhpc list keys` explains them.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own options."""
    parser.add_argument("config", metavar="CONFIG", help="YAML file of the run")
    parser.add_argument("--out", metavar="DIR", type=Path, help="run directory (default: runs/CONFIG-TIME)")
    parser.add_argument("--resume", action="store_true", help="go on with the run that DIR holds")
    parser.add_argument("--print_config", action="store_true", help="print the resolved configuration and stop")


def run(args: argparse.Namespace, overrides: list[str]) -> int:
    """Run the command on every rank; returns the exit code."""
    return in_session(lambda session: _run(session, args, overrides), args.debug)


def _run(session: Session, args: argparse.Namespace, overrides: list[str]) -> int:
    session.together(lambda: _check_usage(args))
    with session.patience("reading the configuration"):
        config = shared_config(session, args.config, overrides)
        path = session.world.share(args.out or default_path(args.config))
    if args.print_config:
        session.say(config.to_yaml().rstrip())
        return DONE
    kept = before_copy(args.config, overrides, config) if session.world.is_root else None
    return federate(session, config, path, resume=args.resume, kept=kept)


def _check_usage(args: argparse.Namespace) -> None:
    if args.resume and args.out is None:
        raise ConfigError("--resume needs --out, the directory of the run to go on with")


def shared_config(session: Session, path: str, overrides: list[str]) -> RunConfig:
    """Read and check the configuration on root, before torch is loaded, and give it to all ranks.

    Raises:
        AgreedError: it cannot be used; exit code 2 on every rank.
    """
    problem, config = None, None
    if session.world.is_root:
        try:
            config = load_run(path, overrides)
        except FedhpcError as error:
            problem = error
    session.world.agree(problem)
    tree = session.world.share(config.to_dict() if config else None)
    return config or run_from(tree or {})
