"""`fedhpc submit`: a batch script for a run, study or sweep, printed or handed to the scheduler."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from fedhpc.commands._configs import load_run
from fedhpc.config import load
from fedhpc.errors import DONE, FAILED, ConfigError, FedhpcError
from fedhpc.launch import SCHEDULERS, JobRequest, Site, parse_time, render
from fedhpc.launch.schedulers import KNOWN
from fedhpc.runs.rundir import BATCH_FILES, default_path, write_atomically

TAKES_OVERRIDES = True
HELP = """Write the batch script of a job into its directory and hand it to the scheduler.

examples:
  fedhpc submit configs/smoke/fedavg.yaml --scheduler slurm --nodes 4 --ranks-per-node 8 --time 2h --dry-run
  fedhpc submit configs/smoke/sweep.yaml --mode sweep --scheduler slurm --array 8 --site launch/sites/slurm-openmpi.yaml

Any key of the configuration can be given as an option: --section.key value.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own options."""
    parser.add_argument("config", metavar="CONFIG", help="YAML file of the run, study or sweep")
    parser.add_argument("--scheduler", choices=SCHEDULERS, required=True)
    parser.add_argument(
        "--mode", choices=("run", "study", "sweep"), default="run", help="the command that the job runs"
    )
    parser.add_argument("--nodes", metavar="N", type=int, default=1)
    parser.add_argument("--ranks-per-node", metavar="R", type=int, default=1, help="MPI ranks on each node")
    parser.add_argument("--cpus-per-rank", metavar="C", type=int, default=1, help="cores of each rank")
    parser.add_argument("--gpus-per-node", metavar="G", type=int, default=0)
    parser.add_argument("--time", metavar="T", help="time limit: HH:MM:SS, D-HH:MM:SS, 90m, 2h or 1d")
    parser.add_argument("--account", metavar="A", help="what is charged (default: the site's)")
    parser.add_argument("--partition", metavar="P", help="partition or queue (default: the site's)")
    parser.add_argument("--array", metavar="K", type=int, default=0, help="K jobs that share one study or sweep")
    parser.add_argument("--stage", action="store_true", help="copy the shards to node-local disk first (runs only)")
    parser.add_argument("--site", metavar="FILE", help="YAML file about the cluster; see launch/sites")
    parser.add_argument("--out", metavar="DIR", type=Path, help="directory of the job (default: runs/CONFIG-TIME)")
    parser.add_argument("--dry-run", action="store_true", help="print the script and stop")


def run(args: argparse.Namespace, overrides: list[str]) -> int:
    """Run the command; returns the exit code."""
    job = _request(args, overrides)
    text = render(job)
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
    config_of_run = load_run(args.config, overrides) if args.mode == "run" else None
    data_root = config_of_run.data.root if config_of_run else None
    if args.stage and data_root is None:
        raise ConfigError("--stage needs a run with data.root: an embedded dataset has no shards to copy")
    out = Path(os.path.abspath(args.out or default_path(args.config)))
    if any(character in str(out) for character in "\n\"$`\\'"):
        raise ConfigError(f"--out {out}: a batch script cannot hold this name; use letters, digits and -_. in it")
    return JobRequest(
        scheduler=args.scheduler,
        mode=args.mode,
        command=(args.mode, os.path.abspath(config), *overrides),
        out=str(out),
        script=str(out / BATCH_FILES[0]),
        directory=os.getcwd(),
        nodes=args.nodes,
        ranks_per_node=args.ranks_per_node,
        cpus_per_rank=args.cpus_per_rank,
        gpus_per_node=args.gpus_per_node,
        seconds=parse_time(args.time) if args.time else None,
        array=args.array,
        stage=os.path.abspath(data_root) if args.stage and data_root else None,
        survive=config_of_run is not None and config_of_run.on_rank_loss == "continue",
        site=site,
    )


def _site_options(args: argparse.Namespace) -> list[str]:
    given = (("account", args.account), ("partition", args.partition))
    return [word for name, value in given if value for word in (f"--{name}", value)]


def _plain_site(args: argparse.Namespace) -> Site:
    """Without a file: the environment that this command runs in."""
    return Site(
        account=args.account, partition=args.partition, setup=[f'export PATH="{Path(sys.executable).parent}:$PATH"']
    )


def _hand_in(job: JobRequest, script: Path) -> int:
    tool, *more = KNOWN[job.scheduler].submit
    if shutil.which(tool) is None:
        raise FedhpcError(f"{script} is written, but there is no {tool} here; hand it in where there is one")
    by_stream = more[-1:] == ["<"]
    words = [tool, *(w for w in more if w != "<"), *([] if by_stream else [str(script)])]
    with script.open(encoding="utf-8") as stream:
        done = subprocess.run(
            words,
            check=False,
            stdin=stream if by_stream else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
    print(f"{script}: {(done.stdout + done.stderr).strip()}")
    return DONE if done.returncode == 0 else FAILED
