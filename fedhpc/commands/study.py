"""`fedhpc study`: several algorithms and seeds, interleaved, in one directory of run directories."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from fedhpc.commands._configs import compare_stored, load_run, run_from
from fedhpc.commands._exit_file import add_exit_file, tell_exit
from fedhpc.commands._federate import BUSY, federate
from fedhpc.commands._session import Session, in_session
from fedhpc.commands._study_plan import study_status, without_copy, write_plan
from fedhpc.config import PlannedRun, RunConfig, plan_study, resolved_study, to_yaml
from fedhpc.errors import BAD_USAGE, DONE, FAILED, STOPPED_EARLY, AgreedError, ConfigError, FedhpcError
from fedhpc.report.studies import IN_VAIN, diverged, why_failed

TAKES_OVERRIDES = True
HELP = """Run every configuration of a study with every seed, one after another, all with the same ranks.

example:
  mpirun -n 4 fedhpc study configs/smoke/hem_study.yaml --out runs/hem
  mpirun -n 4 fedhpc study a.yaml b.yaml --seeds [0,1,2] --rounds 100 --out runs/two
  fedhpc study configs/smoke/hem_study.yaml --out runs/hem --status

The same command goes on where it was stopped and skips what is done. Started several times at once (a job array) on
the same directory, each job takes the runs that no other job works on. Keys of a study (runs, seeds, settings) can be
given as options; any other key goes to every run. Runs with the same seed share initial model, cohorts and batches.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own options."""
    parser.add_argument("configs", metavar="CONFIG", nargs="+", help="a study's YAML file, or those of its runs")
    parser.add_argument("--out", metavar="DIR", type=Path, help="the study's directory")
    parser.add_argument("--resume", action="store_true", help="no effect: a study always goes on where it was stopped")
    parser.add_argument("--dry-run", action="store_true", help="print what would be run and what is done; stop")
    parser.add_argument("--status", action="store_true", help="print how far the study in --out is; stop")
    parser.add_argument("--json", action="store_true", help="with --status: as JSON")
    parser.add_argument("--print_config", action="store_true", help="print the resolved study and stop")
    add_exit_file(parser)


def run(args: argparse.Namespace, overrides: list[str]) -> int:
    """Run the command on every rank; returns the exit code."""
    return in_session(lambda session: tell_exit(session, args.exit_file, _run(session, args, overrides)), args.debug)


def _run(session: Session, args: argparse.Namespace, overrides: list[str]) -> int:
    session.together(lambda: _check_usage(args))
    if not (args.dry_run or args.status or args.print_config):
        return _study(session, args, overrides)
    problem: FedhpcError | None = None
    if session.world.is_root:
        try:
            _show(session, args, overrides)
        except FedhpcError as error:
            problem = error
    session.world.agree(problem)
    return DONE


def _check_usage(args: argparse.Namespace) -> None:
    if args.json and not args.status:
        raise ConfigError("--json goes with --status")
    if args.out is None and not (args.dry_run or args.print_config):
        raise ConfigError("a study needs --out, its directory")


def _show(session: Session, args: argparse.Namespace, overrides: list[str]) -> None:
    """What is asked for instead of running anything."""
    planned = plan_study(args.configs, overrides, load_run)
    if args.print_config:
        return session.say(to_yaml(resolved_study(args.configs, overrides)).rstrip())
    status = study_status(args.out, planned, stored=args.status)
    if args.status:
        return session.say(json.dumps(status.to_dict()) if args.json else status.text())
    session.say(status.plan())
    for run in planned if args.out is not None else ():
        compare_stored(args.out / run.name, run.config)


def _study(session: Session, args: argparse.Namespace, overrides: list[str]) -> int:
    with session.patience("planning the study"):
        out = session.world.share(args.out)
        planned = _shared_plan(session, args.configs, overrides, out)
    outcomes: dict[str, int] = {}
    for number, (name, config, kept) in enumerate(planned):
        session.say(f"[{number + 1}/{len(planned)}] {name}")
        outcomes[name] = _one(session, config, kept, out / name, show_ranks=number == 0)
        if outcomes[name] == STOPPED_EARLY:
            return STOPPED_EARLY
    failed = [name for name, code in outcomes.items() if code in (FAILED, BAD_USAGE)]
    refused = [name for name, code in outcomes.items() if code == BAD_USAGE]
    busy = [name for name, code in outcomes.items() if code == BUSY]
    session.say(f"{out}: {len(planned) - len(failed) - len(busy)} of {len(planned)} runs done")
    if busy:
        session.say(f"{len(busy)} runs are left to other jobs: {', '.join(busy)}")
    in_vain = [name for name in failed if diverged(why_failed(out / name))]
    if in_vain:
        session.warn(f"diverged: {', '.join(in_vain)}; {IN_VAIN}, and give the same command again")
    if refused:
        session.warn(f"refused: {', '.join(refused)}; change what the errors above name")
    if others := [name for name in failed if name not in {*in_vain, *refused}]:
        session.warn(f"failed: {', '.join(others)}; the same command tries them again")
    return DONE if not failed else BAD_USAGE if len(refused) == len(planned) else FAILED


def _one(session: Session, config: RunConfig, kept: RunConfig | None, path: Path, show_ranks: bool) -> int:
    """One run; a failure that all ranks know of ends this run only."""
    try:
        return federate(session, config, path, resume=True, kept=kept, show_ranks=show_ranks, skip_busy=True)
    except FedhpcError as error:
        if session.world.size > 1 and not isinstance(error, AgreedError):
            raise  # the other ranks know nothing of it
        if session.world.is_root:
            print(f"fedhpc: error: {path.name}: {error}", file=sys.stderr, flush=True)
        return BAD_USAGE if error.exit_code == BAD_USAGE else FAILED


def _shared_plan(
    session: Session, paths: list[str], overrides: list[str], out: Path
) -> list[tuple[str, RunConfig, RunConfig | None]]:
    """Plan on root, before torch is loaded, write the plan down, and tell all ranks.

    Returns:
        Name and configuration of each run; on root also the configuration that its directory keeps.
    """
    problem: FedhpcError | None = None
    planned: Sequence[PlannedRun] = []
    kept: Sequence[PlannedRun] = []
    if session.world.is_root:
        try:
            planned = plan_study(paths, overrides, load_run)
            options, kept = without_copy(paths, overrides, planned)
            write_plan(out, paths, options, kept)
        except FedhpcError as error:
            problem = error
    session.world.agree(problem)
    trees = session.world.share([(p.name, p.config.to_dict()) for p in planned])
    keeps = {p.name: p.config for p in kept}
    return [(name, run_from(tree), keeps.get(name)) for name, tree in trees]
