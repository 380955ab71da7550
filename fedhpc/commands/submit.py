"""`fedhpc submit`: a batch script for a run, study or sweep, printed or handed to the scheduler."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fedhpc.commands._configs import load_run, refuse_other_kind
from fedhpc.config import RunConfig, load, plan_study, read_yaml
from fedhpc.errors import DONE, FAILED, ConfigError, FedhpcError
from fedhpc.launch import SCHEDULERS, UNSAFE, JobRequest, Site, parse_time, render
from fedhpc.launch.schedulers import KNOWN
from fedhpc.runs.rundir import BATCH_FILES, default_path, refuse_other, write_atomically

if TYPE_CHECKING:
    from fedhpc.sweep.settings import SweepConfig

TAKES_OVERRIDES = True
HELP = """Write the batch script of a job into its directory and hand it to the scheduler.

examples:
  fedhpc submit configs/smoke/fedavg.yaml --scheduler slurm --nodes 4 --ranks-per-node 8 --time 2h --dry-run
  fedhpc submit configs/smoke/sweep.yaml --scheduler slurm --array 8 --site launch/sites/slurm-openmpi.yaml

The file says what the job is: a run, a study or a sweep. Any key of it can be given as an option: --section.key value.
"""

_PATIENCE = 120.0
"""Seconds that the scheduler may take to accept a script."""


@dataclass(frozen=True)
class _Work:
    """What a configuration file asks for, after it was checked.

    Attributes:
        mode: run, study or sweep.
        survive: some run of it goes on without lost ranks.
        data: its dataset folders, each with the option that replaces it.
        why_not_staged: why `--stage` cannot copy them, or None.
        runs: configurations of its runs, by their place in the job's directory.
        sweep: the configuration of a sweep.
    """

    mode: str
    survive: bool = False
    data: tuple[tuple[str, str], ...] = ()
    why_not_staged: str | None = None
    runs: Mapping[str, RunConfig] = field(default_factory=dict)
    sweep: SweepConfig | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own options."""
    parser.add_argument("config", metavar="CONFIG", help="YAML file of the run, study or sweep")
    parser.add_argument("--scheduler", choices=SCHEDULERS, required=True)
    parser.add_argument(
        "--mode", choices=("run", "study", "sweep"), help="the command that the job runs (default: as the file says)"
    )
    parser.add_argument("--nodes", metavar="N", type=int, default=1)
    parser.add_argument("--ranks-per-node", metavar="R", type=int, default=1, help="MPI ranks on each node")
    parser.add_argument("--cpus-per-rank", metavar="C", type=int, default=1, help="cores of each rank")
    parser.add_argument("--gpus-per-node", metavar="G", type=int, default=0)
    parser.add_argument("--time", metavar="T", help="time limit: HH:MM:SS, D-HH:MM:SS, 90m, 2h or 1d")
    parser.add_argument("--account", metavar="A", help="what is charged (default: the site's)")
    parser.add_argument("--partition", metavar="P", help="partition or queue (default: the site's)")
    parser.add_argument("--array", metavar="K", type=int, default=0, help="K jobs that share one study or sweep")
    parser.add_argument("--stage", action="store_true", help="copy the shards to node-local disk first")
    parser.add_argument("--site", metavar="FILE", help="YAML file about the cluster; see launch/sites")
    parser.add_argument("--out", metavar="DIR", type=Path, help="directory of the job (default: runs/CONFIG-TIME)")
    parser.add_argument(
        "--no-data-check", action="store_true", help="do not look at the datasets: only compute nodes have them"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the script and stop")


def run(args: argparse.Namespace, overrides: list[str]) -> int:
    """Run the command; returns the exit code."""
    job = _request(args, overrides)
    text = render(job)
    if job.survive and job.site.launcher not in (None, job.launcher):
        print(f"fedhpc: on_rank_loss: continue: {job.launcher} instead of {job.site.launcher}", file=sys.stderr)
    if args.dry_run:
        sys.stdout.write(text)
        return DONE
    script = Path(job.script)
    try:
        (script.parent / BATCH_FILES[1]).mkdir(parents=True, exist_ok=True)
        write_atomically(script, text)
        script.chmod(0o755)
    except OSError as error:
        raise FedhpcError(f"{script.parent}: cannot be written ({error.strerror}); choose another --out") from None
    return _hand_in(job, script)


def _request(args: argparse.Namespace, overrides: list[str]) -> JobRequest:
    """Check everything that can be checked here, so that no error waits in the queue."""
    config = Path(args.config)
    if not config.is_file():
        raise ConfigError(f"{config}: no such file")
    site = load(Site, args.site, _site_options(args)) if args.site else _plain_site(args)
    work = _checked(args.config, args.mode, overrides)
    if args.stage and work.why_not_staged:
        raise ConfigError(f"--stage: {work.why_not_staged}")
    out = Path(os.path.abspath(args.out or default_path(args.config)))
    _check_work(work, out, with_data=not args.no_data_check)
    return JobRequest(
        scheduler=args.scheduler,
        mode=work.mode,
        command=tuple(shlex.quote(word) for word in (work.mode, os.path.abspath(config), *overrides)),
        out=_plain(out, "--out"),
        script=str(out / BATCH_FILES[0]),
        directory=_plain(os.getcwd(), "the current directory"),
        nodes=args.nodes,
        ranks_per_node=args.ranks_per_node,
        cpus_per_rank=args.cpus_per_rank,
        gpus_per_node=args.gpus_per_node,
        seconds=parse_time(args.time) if args.time is not None else None,
        array=args.array,
        stage=tuple((option, _plain(os.path.abspath(d), "--stage")) for option, d in work.data) if args.stage else (),
        survive=work.survive,
        site=site,
    )


def _plain(path: str | Path, what: str) -> str:
    if any(character in str(path) for character in UNSAFE):
        raise ConfigError(f"{what} {path}: a batch script cannot hold this name; use letters, digits and -_. in it")
    return str(path)


def _checked(path: str, mode: str | None, overrides: list[str]) -> _Work:
    """Read the configuration as the job will, all of it."""
    keys = read_yaml(path)
    mode = mode or next((kind for key, kind in (("sweep", "sweep"), ("runs", "study")) if key in keys), "run")
    if mode == "sweep":
        from fedhpc.sweep.settings import SweepConfig

        refuse_other_kind(path, keys, mode)
        config = load(SweepConfig, path, overrides)
        folders = config.sweep.roots
        data = tuple((f"--sweep.datasets.{name}", root) for name, root in folders.items() if root is not None)
        why_not = None if data else "embedded datasets have no shards to copy"
        return _Work(mode, data=data, why_not_staged=why_not, sweep=config)
    if mode == "run":
        return _work_of_runs(mode, {"": load_run(path, overrides)})
    return _work_of_runs(mode, {p.name: p.config for p in plan_study([path], overrides, load_run)})


def _work_of_runs(mode: str, runs: Mapping[str, RunConfig]) -> _Work:
    survive = any(run.on_rank_loss == "continue" for run in runs.values())
    roots = {run.data.root for run in runs.values()}
    if roots == {None}:
        why = "an embedded dataset has no shards to copy (data.root is not set)"
        return _Work(mode, survive, why_not_staged=why, runs=runs)
    if len(roots) > 1:
        why = (
            f"the runs of this study read different folders ({', '.join(sorted(map(str, roots)))}); stage them by hand"
        )
        return _Work(mode, survive, why_not_staged=why, runs=runs)
    return _Work(mode, survive, tuple(("--data.root", root) for root in roots if root is not None), runs=runs)


def _check_work(work: _Work, out: Path, with_data: bool) -> None:
    """What is in the job's directory already, and whether the data allow what is asked for."""
    from fedhpc.commands import _job_checks as checks

    refuse_other(out, work.mode)
    if work.sweep is not None:
        checks.check_sweep(work.sweep, out, with_data)
    for name, config in work.runs.items():
        checks.check_directory(config, out / name)
    if with_data:
        checks.check_divisions(work.runs.values())


def _site_options(args: argparse.Namespace) -> list[str]:
    given = (("account", args.account), ("partition", args.partition))
    return [word for name, value in given if value for word in (f"--{name}", value)]


def _plain_site(args: argparse.Namespace) -> Site:
    """Without a file: the environment that this command runs in."""
    return Site(
        account=args.account, partition=args.partition, setup=[f'export PATH="{Path(sys.executable).parent}:$PATH"']
    )


def _hand_in(job: JobRequest, script: Path) -> int:
    scheduler = KNOWN[job.scheduler]
    tool = scheduler.submit[0]
    if shutil.which(tool) is None:
        raise FedhpcError(f"{script} is written, but there is no {tool} here; hand it in where there is one")
    for _ in range(1 if scheduler.has_arrays else max(1, job.array)):
        if not _accepted(scheduler.submit, script):
            return FAILED
    return DONE


def _accepted(command: tuple[str, ...], script: Path) -> bool:
    """Hand a script in and say what the scheduler answers."""
    by_stream = command[-1] == "<"
    words = list(command[:-1]) if by_stream else [*command, str(script)]
    try:
        with script.open(encoding="utf-8") as stream:
            done = subprocess.run(
                words,
                check=False,
                stdin=stream if by_stream else subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
            )
    except subprocess.TimeoutExpired:
        raise FedhpcError(
            f"{words[0]} did not answer within {_PATIENCE:.0f} s; look whether the job is queued before you hand "
            f"{script} in again"
        ) from None
    except OSError as error:
        raise FedhpcError(f"{words[0]} cannot be started ({error.strerror}); {script} is written") from None
    print(f"{script}: {(done.stdout + done.stderr).strip()}")
    return done.returncode == 0
