"""What can be wrong with a launch, found before anything is computed; each problem is one sentence with its remedy."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedhpc.comm.facts import SETTINGS, RankFacts, facts_of
from fedhpc.errors import ConfigError

if TYPE_CHECKING:
    from fedhpc.comm.device import Pinning
    from fedhpc.comm.world import World

UNCHECKED = "FEDHPC_UNCHECKED"
"""Set to 1 to be warned where a launch would be refused."""

_ANYWAY = f"or set {UNCHECKED}=1 to run all the same"
_MOST_SKEW = 5.0
_SEEN_WITHIN = 5.0


def launch_problems(facts: Sequence[RankFacts]) -> list[str]:
    """Why this set of ranks should not run together."""
    found = [
        _differ(facts, "command lines", lambda f: " ".join(f.command), "start all ranks with one command"),
        *(_software_problem(facts, name) for name, _ in (facts[0].software if facts else ())),
        *(_setting_problem(facts, i, name) for i, name in enumerate(SETTINGS)),
        _skew(facts),
        *_bound_together(facts),
    ]
    return [problem for problem in found if problem]


def launch_warnings(facts: Sequence[RankFacts]) -> list[str]:
    """What costs time or bits but may be meant."""
    return [*core_warnings(facts), *node_warnings(facts)]


def core_warnings(facts: Sequence[RankFacts]) -> list[str]:
    """Nodes with more ranks than cores."""
    return [
        f"{len(ranks)} ranks share the {ranks[0].num_cores} core(s) of {host}"
        for host, ranks in _by_host(facts).items()
        if len(ranks) > ranks[0].num_cores
    ]


def node_warnings(facts: Sequence[RankFacts]) -> list[str]:
    """Ranks that compute with other parts than the rest."""
    processors = _differ(
        [f for f in facts if f.processor],
        "processors",
        lambda f: f.processor,
        "results may then depend, in their last bits, on which rank trains a client",
    )
    pythons = _differ(facts, "Pythons", lambda f: f.python, "they are of one version, but is that what you mean?")
    return [text for text in (pythons, processors) if text]


def _differ(facts: Iterable[RankFacts], what: str, value: Callable[[RankFacts], Hashable], remedy: str) -> str | None:
    """Compare one thing over ranks; the sentence shows the two most common values and who has them."""
    groups: dict[Hashable, list[RankFacts]] = {}
    for f in facts:
        groups.setdefault(value(f), []).append(f)
    if len(groups) < 2:
        return None
    common = sorted(groups.items(), key=lambda item: -len(item[1]))[:2]
    shown = ", ".join(f"{_shown(v)} on {_who(ranks)}" for v, ranks in common)
    return f"the ranks have different {what} ({shown}); {remedy}"


def _shown(value: Hashable) -> str:
    text = "nothing" if value is None else str(value)
    return f"'{text if len(text) < 70 else text[:67] + '...'}'" if value is not None else text


def _who(facts: Sequence[RankFacts]) -> str:
    hosts = sorted({f.host for f in facts})
    named = hosts[0] if len(hosts) == 1 else f"{hosts[0]} and {len(hosts) - 1} more host(s)"
    return f"{spans([f.rank for f in facts])} ({named})"


def spans(ranks: Iterable[int]) -> str:
    """`[0, 1, 2, 5]` becomes `ranks 0-2, 5`."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:8]] + (["..."] if len(runs) > 8 else [])
    word = "rank" if len(runs) == 1 and runs[0][0] == runs[0][1] else "ranks"
    return f"{word} {', '.join(shown)}"


def _software_problem(facts: Sequence[RankFacts], name: str) -> str | None:
    remedy = "use one environment on all nodes (a virtual environment on a shared file system, say)"
    return _differ(facts, f"versions of {name}", lambda f: dict(f.software)[name], remedy)


def _setting_problem(facts: Sequence[RankFacts], index: int, name: str) -> str | None:
    remedy = f"export it to all: `mpirun -x {name}` (Open MPI), `mpiexec -genvlist {name}` (MPICH), `srun --export=ALL`"
    return _differ(facts, f"values of {name}", lambda f: f.settings[index], remedy)


def _skew(facts: Sequence[RankFacts]) -> str | None:
    if not facts:
        return None
    facts = [ranks[0] for ranks in _by_host(facts).values()]  # ranks of one host read one clock, some later than others
    early, late = min(facts, key=lambda f: f.clock), max(facts, key=lambda f: f.clock)
    if late.clock - early.clock <= _MOST_SKEW:
        return None
    return (
        f"the clock of {late.host} is {late.clock - early.clock:.0f} s ahead of that of {early.host}: times in records "
        f"and the end of the job would be wrong; have the clocks set (NTP), {_ANYWAY}"
    )


def _by_host(facts: Iterable[RankFacts]) -> dict[str, list[RankFacts]]:
    hosts: dict[str, list[RankFacts]] = {}
    for f in facts:
        hosts.setdefault(f.host, []).append(f)
    return hosts


def _bound_together(facts: Sequence[RankFacts]) -> Iterable[str]:
    """Ranks bound to fewer cores than there are ranks, while other cores of the node are free: nobody means that."""
    for host, ranks in _by_host(facts).items():
        cores = frozenset().union(*(f.cores for f in ranks))
        if len(cores) < min(len(ranks), ranks[0].num_cores):
            yield (
                f"{len(ranks)} ranks are bound to {len(cores)} of the {ranks[0].num_cores} cores of {host}; ask for "
                f"more cores per task, or start with `mpirun --bind-to none` or `srun --cpu-bind=none`, {_ANYWAY}"
            )


def pinning_problems(pinnings: Sequence[Pinning]) -> list[str]:
    """GPUs shared by accident: two ranks on one while another that they can see is idle."""
    found = []
    for host in sorted({p.host for p in pinnings}):
        here = [p for p in pinnings if p.host == host and p.device != "cpu"]
        used = [p.label for p in here]
        idle = sorted({gpu for p in here for gpu in p.visible} - set(used))
        shared = sorted({gpu for gpu in used if used.count(gpu) > 1})
        if shared and idle:
            ranks = [p.rank for p in here if p.label == shared[0]]
            found.append(
                f"{spans(ranks)} share the GPU {shared[0]} of {host} while {len(idle)} other(s) are idle; "
                f"set device.name to auto or cuda so that each rank takes its own, {_ANYWAY}"
            )
    return found


def refuse(world: World, problems: Sequence[str], warn: Callable[[str], None]) -> None:
    """Root's problems end the job on every rank, or are only said where the user wants that; collective.

    Raises:
        AgreedError: there is a problem; exit code 2.
    """
    unchecked = os.environ.get(UNCHECKED, "") not in ("", "0")
    if unchecked:
        for problem in problems:
            warn(problem)
    more = f" (and {len(problems) - 1} more problem(s): `fedhpc doctor` shows all)" if len(problems) > 1 else ""
    world.agree(ConfigError(problems[0] + more) if problems and not unchecked else None)


def check_launch(world: World, warn: Callable[[str], None]) -> None:
    """Compare what all ranks know about themselves; collective.

    Raises:
        AgreedError: they should not run together; exit code 2.
    """
    if world.size == 1:
        return
    facts = world.gather(facts_of(world))
    for text in launch_warnings(facts or []):
        warn(text)
    refuse(world, launch_problems(facts or []), warn)


def check_shared(world: World, folder: Path) -> None:
    """Make sure that every rank sees root's directory, and not another one of the same name; collective.

    Ranks of one node may each have their own: containers with a private /tmp do.

    Raises:
        AgreedError: some rank does not; exit code 2.
    """
    if world.size == 1:
        return
    token = world.share(secrets.token_hex(8))
    file = folder / f".seen-{token}"
    problem = None
    if world.is_root:
        try:
            file.write_text(token, encoding="utf-8")
        except OSError as error:
            problem = ConfigError(f"{folder}: cannot be written ({error.strerror}); choose another --out")
    world.agree(problem)
    # One rank of a node asks the server by a listing; for the others a look at the file itself is cheaper.
    blind = not ((world.local_rank and os.path.exists(file)) or _appears(file))
    hosts = [host for host in dict.fromkeys(world.gather(world.host if blind else None) or []) if host]
    if world.is_root:
        file.unlink(missing_ok=True)
    shown = f"{', '.join(hosts[:4])}{f' and {len(hosts) - 4} more' if len(hosts) > 4 else ''}"
    problem = ConfigError(f"{folder}: not seen by {shown}; put --out on a file system that all nodes share")
    world.agree(problem if hosts else None)


def _appears(file: Path) -> bool:
    """Whether a file another node has just made shows up here; network file systems may take a moment."""
    end = time.monotonic() + _SEEN_WITHIN
    while True:
        try:
            if file.name in os.listdir(file.parent):  # listing makes NFS ask the server again
                return True
        except OSError:
            pass
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
