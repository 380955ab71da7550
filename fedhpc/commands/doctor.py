"""`fedhpc doctor`: what this set of ranks is, what its parts cost, and what is wrong with it."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedhpc.comm.checks import check_shared, core_warnings, launch_problems, node_warnings, pinning_problems
from fedhpc.comm.deadline import job_end
from fedhpc.comm.device import Pinning, device_warnings, pin, pinning_table, thread_warnings
from fedhpc.comm.doctor import (
    Cost,
    Verdict,
    host_loss,
    measure_collectives,
    nearest_existing,
    read_speed,
    writing_problems,
)
from fedhpc.comm.facts import facts_of
from fedhpc.comm.gpu_probe import probe
from fedhpc.commands._session import Session, in_session
from fedhpc.errors import DONE, FAILED, FedhpcError

HELP = """Show ranks, hosts, cores, threads and devices, measure collectives and reading, and judge each in one line.

examples:
  mpirun -n 8 fedhpc doctor
  srun --mpi=pmix fedhpc doctor --out runs --shard data/pacs --json

Exit code: 0 if nothing failed (warnings are no failures), 1 otherwise.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own options."""
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path("."), help="where runs would be kept")
    parser.add_argument("--shard", metavar="DIR", type=Path, help="prepared dataset to read from every node")
    parser.add_argument("--megabytes", metavar="MB", type=float, default=45.0, help="size of a model (ResNet-18: 45)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(args: argparse.Namespace, overrides: list[str]) -> int:
    """Run the command on every rank; returns the exit code."""
    return in_session(lambda session: _doctor(session, args), args.debug, checked=False)


def _doctor(session: Session, args: argparse.Namespace) -> int:
    world = session.world
    facts = world.gather(facts_of(world)) or []
    pinnings = world.gather(pin(world)) or []
    costs, wrong = measure_collectives(world, world.share(args.megabytes))
    wrongs = [text for found in world.gather(wrong) or [] for text in found]
    folder, place = _run_directory(session, args.out)
    reading, locks = _reading(session, args.shard), _hdf5(session, place)
    gpu = _gpu(session, pinnings)
    code = DONE
    if world.is_root:
        verdicts = [
            *_all("launch", "failed", launch_problems(facts), "the ranks fit together"),
            *_all("launch", "warning", node_warnings(facts), None),
            *_all(
                "cores", "warning", [*core_warnings(facts), *thread_warnings(pinnings)], "no more threads than cores"
            ),
            *_all("devices", "failed", pinning_problems(pinnings), "no device is shared by accident"),
            *_all("devices", "warning", device_warnings(pinnings), None),
            *_all("collectives", "failed", wrongs, "broadcast, sum and ring give the right numbers"),
            *folder,
            *locks,
            *reading,
            gpu,
            host_loss(len({p.host for p in pinnings}), world.survives, os.environ),
            _time_left(),
            _start_method(),
        ]
        code = FAILED if any(v.state == "failed" for v in verdicts) else DONE
        _show(session, args.json, pinnings, costs, verdicts)
    return int(world.share(code))


def _all(name: str, state: Any, problems: list[str], good: str | None) -> list[Verdict]:
    """One verdict per problem, or one that all is well."""
    if problems:
        return [Verdict(name, state, text) for text in problems]
    return [Verdict(name, "ok", good)] if good else []


def _run_directory(session: Session, out: Path) -> tuple[list[Verdict], Path]:
    """Whether every rank can write where runs would be kept, or where that would be made, and where; collective."""
    world = session.world
    place = world.share(nearest_existing(out))
    problems = world.share(writing_problems(world, place))
    if not problems and (blind := _problem_of(lambda: check_shared(world, place))):
        problems = [blind]
    there = out.absolute() == place
    seen = f"{out}: every rank sees it and can write there"
    made = f"{out}: not there yet, a run would make it; every rank sees {place} and can write there"
    return _all("run directory", "failed", problems, seen if there else made), place


def _problem_of(check: Any) -> str | None:
    try:
        check()
    except FedhpcError as error:
        return str(error)
    return None


def _reading(session: Session, folder: Path | None) -> list[Verdict]:
    """Read the first shard from one rank of each node; collective."""
    world = session.world
    found: tuple[str, float] | str | None = None
    if folder is not None and world.local_rank == 0:
        try:
            shard = sorted(folder.glob("*.h5"))[0]
            found = (world.host, read_speed(shard)[0])
        except (OSError, IndexError) as error:
            found = f"{world.host} cannot read {folder}: {getattr(error, 'strerror', None) or 'no shard (*.h5) there'}"
    told = [f for f in world.gather(found) or [] if f is not None]
    if folder is None:
        return [Verdict("reading", "skipped", "give --shard DIR to read a prepared dataset from every node")]
    verdicts = [Verdict("reading", "failed", text) for text in told if isinstance(text, str)]
    speeds = [f for f in told if not isinstance(f, str)]
    if speeds:
        slow, fast = min(speeds, key=lambda s: s[1]), max(speeds, key=lambda s: s[1])
        text = f"{slow[1]:.0f} MB/s on the slowest node ({slow[0]}), {fast[1]:.0f} MB/s on the fastest ({fast[0]})"
        verdicts.append(Verdict("reading", "ok" if slow[1] > fast[1] / 4 else "warning", text))
    return verdicts


def _hdf5(session: Session, folder: Path) -> list[Verdict]:
    """Write and read a file from one rank of each node; collective. Nodes mount one file system in different ways."""
    from fedhpc.data.hdf5_check import check_hdf5, describe_hdf5

    world = session.world
    found = (world.host, *check_hdf5(folder)) if world.local_rank == 0 else None
    groups: dict[tuple[bool, str], list[str]] = {}
    for host, good, text in filter(None, world.gather(found) or []):
        groups.setdefault((good, text), []).append(host)
    verdicts = [Verdict("HDF5", "ok", describe_hdf5())]
    for (good, text), hosts in groups.items():
        where = ", ".join(hosts[:4]) + (f" and {len(hosts) - 4} more" if len(hosts) > 4 else "")
        state: Any = "failed" if not good else "ok" if len(groups) == 1 else "warning"
        verdicts.append(Verdict("HDF5", state, text if len(groups) == 1 else f"{where}: {text}"))
    return verdicts


def _gpu(session: Session, pinnings: list[Pinning]) -> Verdict:
    """Root tries GPU buffers in a child process; collective."""
    problem: Verdict | None = None
    if session.world.is_root:
        if all(p.device == "cpu" for p in pinnings):
            problem = Verdict("GPU-aware MPI", "skipped", "no GPU in use")
        elif not session.world.library:
            problem = Verdict("GPU-aware MPI", "skipped", "no MPI in use")
        else:
            works, text = probe()
            staged = "; buffers are staged through host memory in any case"
            problem = Verdict("GPU-aware MPI", "ok", f"{'yes' if works else 'no'}: {text}{staged}")
    shared = session.world.share(problem)
    assert shared is not None
    return shared


def _time_left() -> Verdict:
    end = job_end()
    if end is None:
        return Verdict("time limit", "ok", "none known; runs stop early on SIGUSR1 only")
    return Verdict(
        "time limit", "ok", f"the job ends in {(end - time.time()) / 60:.0f} min; runs stop in time by themselves"
    )


def _start_method() -> Verdict:
    method = multiprocessing.get_start_method(allow_none=True) or "the default"
    return Verdict("processes", "ok", f"start method: {method}; data are mapped, no loader processes are started")


def _show(session: Session, as_json: bool, pinnings: list[Pinning], costs: list[Cost], verdicts: list[Verdict]) -> None:
    library = session.world.library or "none (one process)"
    if as_json:
        tree = {
            "mpi": library,
            "ranks": [asdict(p) for p in pinnings],
            "collectives": [asdict(c) for c in costs],
            "verdicts": [asdict(v) for v in verdicts],
        }
        session.say(json.dumps(tree, indent=1))
        return
    session.say(pinning_table(pinnings))
    session.say(f"\nMPI library: {library}\n")
    session.say("\n".join(cost.text for cost in costs) + "\n")
    width = max(len(v.name) for v in verdicts)
    session.say("\n".join(f"{v.state:8} {v.name:{width}}  {v.text}" for v in verdicts))
