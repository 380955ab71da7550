"""`fedhpc sweep`: many domain-generalization trials, on as many ranks and jobs as there are."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from fedhpc.commands._configs import refuse_other_kind
from fedhpc.commands._exit_file import add_exit_file, tell_exit
from fedhpc.commands._session import Session, in_session
from fedhpc.config import load, read_yaml
from fedhpc.errors import DONE, FAILED, STOPPED_EARLY, ConfigError, FedhpcError
from fedhpc.runs.rundir import default_path

if TYPE_CHECKING:
    from fedhpc.commands._sweeping import Prepared
    from fedhpc.sweep.queue_files import QueueSettings

TAKES_OVERRIDES = True
HELP = """Run the trials of a sweep as a YAML file says. The sweep's folder is the queue: run the same command again, on
any number of ranks or in several jobs at once, to go on; `fedhpc report DIR` makes the tables.

example:
  mpirun -n 4 fedhpc sweep configs/smoke/sweep.yaml --out sweeps/first
  fedhpc sweep configs/smoke/sweep.yaml --out sweeps/first --status

Any key of the configuration can be given as an option: --section.key value.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own options."""
    parser.add_argument("config", metavar="CONFIG", help="YAML file of the sweep")
    parser.add_argument("--out", metavar="DIR", type=Path, help="the sweep's folder (default: runs/CONFIG-TIME)")
    parser.add_argument(
        "--only", metavar="ID,ID@STEP", help="run these trials only, and keep the models after these steps"
    )
    parser.add_argument("--resume", action="store_true", help="no effect: a sweep always goes on where it was stopped")
    parser.add_argument(
        "--retry-failed", action="store_true", help="try trials again that were given up, or whose records are damaged"
    )
    parser.add_argument("--dry-run", action="store_true", help="print counts, remarks and an estimate of hours; stop")
    parser.add_argument("--status", action="store_true", help="print how far the sweep in --out is; stop")
    parser.add_argument("--json", action="store_true", help="with --status and --dry-run: as JSON")
    parser.add_argument("--export", metavar="DIR", type=Path, help="write DomainBed's results.jsonl folders; stop")
    parser.add_argument("--data-dir", metavar="DIR", default="", help="with --export: --data_dir of DomainBed's sweep")
    parser.add_argument("--print_config", action="store_true", help="print the resolved configuration and stop")
    add_exit_file(parser)


def run(args: argparse.Namespace, overrides: list[str]) -> int:
    """Run the command on every rank; returns the exit code."""
    return in_session(lambda session: tell_exit(session, args.exit_file, _run(session, args, overrides)), args.debug)


def _run(session: Session, args: argparse.Namespace, overrides: list[str]) -> int:
    session.together(lambda: _check_usage(args))
    if args.export or args.print_config or args.status:
        return _on_root(session, args, overrides)
    return _sweep(session, args, overrides)


def _check_usage(args: argparse.Namespace) -> None:
    if args.json and not (args.status or args.dry_run):
        raise ConfigError("--json goes with --status and --dry-run")
    if (args.status or args.export) and args.out is None:
        raise ConfigError("--status and --export need --out, the sweep's folder")


def _on_root(session: Session, args: argparse.Namespace, overrides: list[str]) -> int:
    """What needs one process only."""
    problem: FedhpcError | None = None
    if session.world.is_root:
        try:
            _show(session, args, overrides)
        except FedhpcError as error:
            problem = error
    session.world.agree(problem)
    return DONE


def _show(session: Session, args: argparse.Namespace, overrides: list[str]) -> None:
    from fedhpc.sweep.settings import SweepConfig

    refuse_other_kind(args.config, read_yaml(args.config), "sweep")
    config = load(SweepConfig, args.config, overrides)
    if args.print_config:
        from fedhpc.config import to_yaml

        session.say(to_yaml(config.to_dict()).rstrip())
    elif args.export:
        from fedhpc.report.original import export_original

        session.say(f"{args.export}: {export_original(args.out, args.export, args.data_dir)} runs")
    else:
        from fedhpc.report.trial_files import is_sweep
        from fedhpc.sweep.status import sweep_status
        from fedhpc.sweep.stored import refuse_change

        if is_sweep(args.out):
            refuse_change(args.out, config)
        status = sweep_status(args.out, config.queue.settings())
        session.say(json.dumps(status.to_dict()) if args.json else status.text())


def _check(session: Session, args: argparse.Namespace, overrides: list[str]) -> None:
    """Tell a mistake in the configuration before torch is loaded; collective."""
    problem: FedhpcError | None = None
    if session.world.is_root:
        from fedhpc.sweep.settings import SweepConfig

        try:
            refuse_other_kind(args.config, read_yaml(args.config), "sweep")
            load(SweepConfig, args.config, overrides)
        except FedhpcError as error:
            problem = error
    session.world.agree(problem)


def _sweep(session: Session, args: argparse.Namespace, overrides: list[str]) -> int:
    _check(session, args, overrides)
    from fedhpc.commands import _sweep_repairs, _sweeping
    from fedhpc.timing import Stopwatch

    world = session.world
    path = world.share(args.out or default_path(args.config))
    with session.patience("planning the sweep"):
        prepared: Prepared = _sweeping.prepare(session, args.config, overrides, path, args.only, dry=args.dry_run)
    if args.dry_run:
        session.say(_sweeping.dry_run(session, prepared, path, args.json))
        world.agree(next(iter(prepared.absent.values()), None))
        return DONE
    session.log_folder = path / "log"
    _sweep_repairs.reopen_trials(session, prepared, path, args.retry_failed)
    session.say(_sweeping.introduction(session, prepared))
    clock = Stopwatch()
    with _sweeping.watched(session, path, clock, prepared.config.hang_seconds):
        settled = _sweeping.run_trials(session, prepared, path, clock)
        return _conclude(session, path, prepared.config.queue.settings(), settled)


def _conclude(session: Session, path: Path, patience: QueueSettings, settled: bool) -> int:
    """Say how it stands, once all ranks are back."""
    ends = session.world.gather((settled, session.stop.name))
    code = DONE
    if ends is not None:
        from fedhpc.sweep.status import sweep_status

        status = sweep_status(path, patience)
        session.say(f"{path}: {status.text()}")
        if not all(settled for settled, _ in ends) and (status.running or status.missing):
            code = STOPPED_EARLY
            why = next((name for _, name in ends if name), "a signal")
            session.say(f"stopped ({why}); run the same command again to go on")
        elif status.failed:
            code = FAILED
            session.say(f"tracebacks of failed trials are in {path}/queue/*.failed; --retry-failed tries them again")
        else:
            session.say(f"`fedhpc report {path}` makes the tables")
    return session.world.share(code)
