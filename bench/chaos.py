"""Kill things at random moments, resume, and see that a run still ends with the bits of an undisturbed one.

    python bench/chaos.py --kills 20 --seed 0                 mpirun on this machine
    python bench/chaos.py --kills 20 --seed 0 --cluster       three hosts of tests/cluster (root and Debian packages)

Each leg starts `fedhpc run --resume` on a random number of ranks, waits a random time and does one thing from the list;
the last leg is left alone. Broken promises are counted: a checkpoint that got lost, a job that did not end within the
time limit, another weights_sha256. Exit code 1 if there is one. `--summary FILE` writes a table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "tests" / "cluster"), str(REPOSITORY)]

import virtual  # noqa: E402

RUN = [
    "--evaluate.target_accuracy",
    "null",
    "--evaluate.every",
    "50",
    "--checkpoint.every",
    "1",
    "--hang_seconds",
    "20",
]
LOCAL = ("rank", "root", "launcher", "stop", "usr1", "term", "all")
HOSTS = (*LOCAL, "host", "link", "daemon")
LIMIT = 75.0
"""Seconds within which a job must end after anything happened to it."""


@dataclass
class Leg:
    """What happened in one start of the run."""

    what: str
    ranks: int
    after: float
    ended: float = 0.0
    code: int | None = None
    saved: int = 0
    problems: list[str] = field(default_factory=list)


class Machine:
    """Starts jobs on this machine and knows their ranks."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fedhpc-chaos-"))
        self.env = {
            **virtual.environment(),
            "FEDHPC_START_SECONDS": "40",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1",
            "PRTE_MCA_prte_tmpdir_base": str(self.folder),
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
            "PRTE_MCA_hwloc_default_binding_policy": "none",
        }

    def start(self, ranks: int, words: list[str], log: Path) -> virtual.Process:
        """One mpirun."""
        command = [str(virtual.BIN / "mpirun"), "-n", str(ranks), sys.executable, "-m", "fedhpc", *words]
        return virtual.Process(command, self.env, log)

    def down(self) -> None:
        """Remove what is left in files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def mend(self) -> None:
        """Nothing breaks for longer than a leg."""


class Hosts(Machine):
    """The same on the three hosts of the virtual cluster."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = virtual.Cluster()
        self.used: list[str] = []
        self.broken = ""

    def start(self, ranks: int, words: list[str], log: Path) -> virtual.Process:
        """One mpirun from head."""
        hosts = {f"node{n + 1}": (ranks + 2 - n) // 3 for n in range(3)}
        used = {host: slots for host, slots in hosts.items() if slots}
        self.used = list(used)
        env = {
            "FEDHPC_START_SECONDS": "40",
            "PRTE_MCA_plm_ssh_args": "-o ServerAliveInterval=2 -o ServerAliveCountMax=2",
        }
        passed_on = ["-x", "FEDHPC_START_SECONDS"]  # ssh passes nothing on by itself
        return self.cluster.start("head", self.cluster.mpirun(used, words, *passed_on), log, env)

    def mend(self) -> None:
        """Bring back what was switched off."""
        if self.broken:
            self.cluster.lab("poweron", self.broken)  # after `link`, too: ranks that were cut off go with their host
            self.broken = ""

    def down(self) -> None:
        """All of it."""
        left = self.cluster.down()
        super().down()
        if left:
            raise SystemExit(f"still there: {left}")


def ranks_of(out: Path) -> dict[int, int]:
    """Rank -> pid of the ranks of this run that live, wherever they are; found by their command line."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            if str(out).encode() not in command or not os.path.basename(command.split(b"\0")[0]).startswith(b"python"):
                continue
            variables = (entry / "environ").read_bytes()
        except OSError:
            continue
        if match := re.search(rb"\0?(?:OMPI_COMM_WORLD_RANK|PMIX_RANK)=(\d+)", variables):
            found[int(match[1])] = int(entry.name)
    return found


def saved(out: Path) -> int:
    """Round of the newest checkpoint."""
    rounds = [int(p.parent.name[6:]) for p in (out / "checkpoints").glob("round-*/meta.json")]
    return max(rounds, default=0)


def disturb(machine: Machine, job: virtual.Process, leg: Leg, out: Path, draw: random.Random) -> None:
    """Do one thing."""
    ranks = ranks_of(out)
    if leg.what in ("usr1", "term", "launcher"):
        number = {"usr1": signal.SIGUSR1, "term": signal.SIGTERM, "launcher": signal.SIGKILL}[leg.what]
        send(job.pid, number)
    elif leg.what in ("host", "link", "daemon"):
        assert isinstance(machine, Hosts)
        node = draw.choice(machine.used)  # the others' end disturbs nobody
        if leg.what == "daemon":
            machine.cluster.lab(node, "pkill", "-KILL", "prted")
        else:
            machine.cluster.lab({"host": "poweroff", "link": "unplug"}[leg.what], node)
            machine.broken = node
    elif leg.what == "all":
        for pid in ranks.values():
            send(pid, signal.SIGKILL)
    elif ranks:
        victim = min(ranks) if leg.what == "root" else draw.choice(sorted(ranks))
        send(ranks[victim], signal.SIGSTOP if leg.what == "stop" else signal.SIGKILL)


def send(pid: int, number: int) -> None:
    """Signal one process, which may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def wait_for_save(job: virtual.Process, out: Path, before: int) -> None:
    """Wait until a new checkpoint is there, or the job has ended."""
    end = time.monotonic() + 90
    while saved(out) <= before and job.poll() is None and time.monotonic() < end:
        time.sleep(0.05)


def play(machine: Machine, what: str, out: Path, words: list[str], logs: Path, draw: random.Random, number: int) -> Leg:
    """One leg, to its end."""
    starting = draw.random() < 0.25  # while it starts, else after it has saved something new
    leg = Leg(what, draw.randint(2, 4), round(draw.uniform(0.5, 8.0) if starting else draw.uniform(0.0, 3.0), 2))
    before = saved(out)
    job = machine.start(leg.ranks, [*words, "--resume"], logs / f"{number:02d}-{what}.log")
    began = time.monotonic()
    patience = 600.0
    if what != "nothing":
        try:
            if not starting:
                wait_for_save(job, out, before)
            job.wait(timeout=leg.after)
        except subprocess.TimeoutExpired:
            disturb(machine, job, leg, out, draw)
            patience = LIMIT
    touched = time.monotonic()
    try:
        leg.code = job.wait(timeout=patience)
    except subprocess.TimeoutExpired:
        leg.problems.append(f"no end within {patience:g} s")
        send(job.pid, signal.SIGKILL)
        job.wait()
    leg.ended = round(time.monotonic() - touched, 1)
    end = time.monotonic() + 15
    while (left := ranks_of(out)) and time.monotonic() < end:
        time.sleep(0.2)
    if left:
        if machine.__class__ is Machine or what not in ("host", "link"):
            leg.problems.append(f"ranks {sorted(left)} outlive the job")
        for pid in left.values():
            send(pid, signal.SIGKILL)
    machine.mend()
    leg.saved = saved(out)
    if leg.saved < before:
        leg.problems.append(f"the newest checkpoint was of round {before} and is of {leg.saved}")
    when = f"{'starting' if starting else 'running'} {leg.after:.1f} s"
    print(f"{number:3} {what:9} {leg.ranks} ranks, {when}: ended {leg.ended:.1f} s later with {leg.code}", end="; ")
    print(f"saved round {leg.saved} ({time.monotonic() - began:.0f} s) {'; '.join(leg.problems)}", flush=True)
    return leg


def chaos(args: argparse.Namespace) -> dict[str, Any]:
    """The whole play; returns its summary."""
    draw = random.Random(args.seed)
    machine = Hosts() if args.cluster else Machine()
    logs = Path(tempfile.mkdtemp(prefix="fedhpc-chaos-logs-"))
    out, undisturbed = logs / "run", logs / "undisturbed"
    words = ["run", str(virtual.CONFIG), "--rounds", str(args.rounds), *RUN]
    try:
        alone = machine.start(1, [*words, "--out", str(undisturbed)], logs / "undisturbed.log")
        assert alone.wait(timeout=900) == 0, alone.text
        words += ["--out", str(out)]
        kinds = HOSTS if args.cluster else LOCAL
        order = [kinds[i % len(kinds)] for i in range(args.kills)]
        draw.shuffle(order)
        legs = []
        for number, what in enumerate(order):
            if (out / "done").exists():
                print("done before all kills: raise --rounds", flush=True)
                break
            legs.append(play(machine, what, out, words, logs, draw, number))
        while not (out / "done").exists() and len(legs) < args.kills + 3:
            legs.append(play(machine, "nothing", out, words, logs, draw, len(legs)))
        same = (out / "done").exists() and virtual.sha(out) == virtual.sha(undisturbed)
    finally:
        machine.down()
    problems = [p for leg in legs for p in leg.problems] + ([] if same else ["other weights than undisturbed"])
    return {
        "seed": args.seed,
        "rounds": args.rounds,
        "cluster": args.cluster,
        "same_bits": same,
        "problems": problems,
        "legs": [vars(leg) for leg in legs],
    }


def table(found: dict[str, Any]) -> str:
    """The summary as Markdown."""
    place = "three hosts in network namespaces" if found["cluster"] else "one machine"
    kills = [leg for leg in found["legs"] if leg["what"] != "nothing"]
    kinds = dict.fromkeys(leg["what"] for leg in kills)
    lines = [
        f"# Chaos on {place}, seed {found['seed']}",
        "",
        f"{len(kills)} disturbances of one run of {found['rounds']} rounds on 2 to 4 ranks, checkpoint every round. "
        f"Same bits as undisturbed: {'yes' if found['same_bits'] else 'NO'}. "
        f"Broken promises: {'; '.join(found['problems']) or 'none'}.",
        "",
        "| what | times | slowest end (s) | exit codes |",
        "|---|---|---|---|",
    ]
    for kind in kinds:
        legs = [leg for leg in kills if leg["what"] == kind]
        codes = ", ".join(sorted({str(leg["code"]) for leg in legs}))
        lines.append(f"| {kind} | {len(legs)} | {max(leg['ended'] for leg in legs):.1f} | {codes} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--summary", type=Path)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that everything is taken down
    found = chaos(args)
    if args.summary:
        args.summary.parent.mkdir(parents=True, exist_ok=True)
        args.summary.write_text(table(found), encoding="utf-8")
    print(json.dumps({k: v for k, v in found.items() if k != "legs"}))
    sys.exit(1 if found["problems"] else 0)


if __name__ == "__main__":
    main()
