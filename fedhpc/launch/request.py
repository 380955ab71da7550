"""What a job needs, and what a site is like."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Annotated, Literal

from fedhpc.config import Limits, Section
from fedhpc.errors import ConfigError

SCHEDULERS = ("slurm", "pbs", "lsf", "flux")
Launcher = Literal["srun", "mpirun", "mpiexec", "jsrun", "flux"]

_LAUNCHERS: dict[str, Launcher] = {"slurm": "srun", "pbs": "mpirun", "lsf": "mpirun", "flux": "flux"}
_OWN: tuple[Launcher, ...] = ("mpirun", "mpiexec")
"""Launchers that belong to an MPI library."""
_SCHEDULER_OF: dict[str, str] = {"srun": "slurm", "jsrun": "lsf", "flux": "flux"}
"""The others, which belong to a scheduler."""
_UNITS = {"m": 60, "h": 3600, "d": 86400}
UNSAFE = "\n\"$`\\'%{}"
"""Characters that mean something to a shell or a scheduler inside a quoted name."""


@dataclass(frozen=True)
class Site(Section):
    """A cluster, as a YAML file of `launch/sites` describes it; texts are shell and may use its variables."""

    mpi: Annotated[Literal["openmpi", "mpich", "cray"], "the family of the MPI library that mpi4py was built for"] = (
        "openmpi"
    )
    launcher: Annotated[Launcher | None, "what starts the ranks; null: srun, mpirun or flux, by the scheduler"] = None
    launcher_flags: Annotated[list[str], "more words for the launcher"] = field(default_factory=list)
    modules: Annotated[list[str], "modules to load, instead of those that are (with mpi: cray beside them)"] = field(
        default_factory=list
    )
    setup: Annotated[list[str], "lines of shell that make fedhpc callable"] = field(default_factory=list)
    environment: Annotated[list[str], "NAME=VALUE for every rank"] = field(default_factory=list)
    directives: Annotated[list[str], "more lines for the scheduler, without #SBATCH and the like"] = field(
        default_factory=list
    )
    partition: Annotated[str | None, "partition or queue"] = None
    account: Annotated[str | None, "what is charged"] = None
    scratch: Annotated[str, "node-local disk, for --stage"] = "${TMPDIR:-/tmp}"
    requeue: Annotated[bool, "Slurm: jobs may be requeued; else the script hands itself in again"] = True
    warn_seconds: Annotated[int, Limits(at_least=0), "warn so long before the time limit"] = 120

    def __post_init__(self) -> None:
        super().__post_init__()
        for setting in self.environment:
            if not re.fullmatch(r"[A-Za-z_]\w*=.*", setting):
                raise ConfigError(f"environment must be NAME=VALUE, got '{setting}'")
        for name, value in (("partition", self.partition), ("account", self.account)):
            if value is not None and (not value.strip() or any(c in UNSAFE for c in value)):
                raise ConfigError(f"{name} must be a name that a batch script can hold, got '{value}'")


@dataclass(frozen=True)
class JobRequest:
    """One job, or several jobs (an array) that share one directory.

    Attributes:
        scheduler: slurm, pbs, lsf or flux.
        mode: run, study or sweep.
        command: words after `fedhpc`, without `--out`, quoted for the shell where they need it.
        out: directory of the run, study or sweep; a `$` in it is the shell's.
        script: where the script is kept, for handing it in again.
        directory: where the job runs.
        nodes: number of nodes.
        ranks_per_node: MPI ranks on each.
        cpus_per_rank: cores of each rank.
        gpus_per_node: GPUs of each node.
        seconds: time limit, or None for the site's default.
        array: members of the array, 0 for a single job.
        stage: data directories to copy to node-local disk first, each with the option that takes the copy.
        log: name of the log, or None for one in `out`.
        title: name of the job, or None to take it from `out`.
        survive: survivors of a lost rank go on (Open MPI's mpirun only).
        site: the cluster.

    Raises:
        ConfigError: a number is out of range, or what is asked for does not go together.
    """

    scheduler: str
    mode: str
    command: tuple[str, ...]
    out: str
    script: str
    directory: str
    nodes: int = 1
    ranks_per_node: int = 1
    cpus_per_rank: int = 1
    gpus_per_node: int = 0
    seconds: int | None = None
    array: int = 0
    stage: tuple[tuple[str, str], ...] = ()
    log: str | None = None
    title: str | None = None
    survive: bool = False
    site: Site = field(default_factory=Site)

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise ConfigError(f"--{name.replace('_', '-')} must be at least {least}, got {getattr(self, name)}")
        if self.seconds is not None and self.seconds < 1:
            raise ConfigError("--time must be longer than nothing")
        if self.scheduler not in SCHEDULERS:
            raise ConfigError(f"--scheduler must be one of {', '.join(SCHEDULERS)}, got '{self.scheduler}'")
        wanted = self.site.launcher or ""
        if _SCHEDULER_OF.get(wanted, self.scheduler) != self.scheduler:
            raise ConfigError(
                f"the site's launcher {wanted} starts ranks under {_SCHEDULER_OF[wanted]}, not under {self.scheduler}; "
                f"name mpirun or mpiexec, or leave it out ({_LAUNCHERS[self.scheduler]})"
            )
        if self.array and self.mode == "run":
            raise ConfigError("--array is for studies and sweeps, whose jobs share one directory; a run has one job")
        if self.survive and (problem := self._why_no_survivors()):
            raise ConfigError(
                f"on_rank_loss: continue needs Open MPI's mpirun, {problem}; give a --site with launcher: mpirun, or "
                "--on_rank_loss abort (the job ends, is handed in again and resumes)"
            )

    def _why_no_survivors(self) -> str | None:
        """Why survivors of a lost rank cannot go on under this site's launcher, or None."""
        site, usual = self.site, self.site.launcher or _LAUNCHERS[self.scheduler]
        if site.mpi != "openmpi":
            return f"and this site has mpi: {site.mpi}"
        if usual in _OWN:
            return None
        if usual != "srun":
            return f"and this site starts ranks by {usual}"
        return "and this site has launcher_flags for srun" if site.launcher_flags else None

    @property
    def ranks(self) -> int:
        """All ranks of a job."""
        return self.nodes * self.ranks_per_node

    @property
    def name(self) -> str:
        """A short name that every scheduler takes."""
        return (
            re.sub(r"[^A-Za-z0-9_.-]", "-", self.title or PurePath(self.out).name)[:32].lstrip("-.0123456789")
            or "fedhpc"
        )

    @property
    def launcher(self) -> Launcher:
        """What starts the ranks; mpirun instead of srun where survivors are to go on, since srun ends them."""
        usual = self.site.launcher or _LAUNCHERS[self.scheduler]
        return "mpirun" if self.survive and usual not in _OWN else usual

    @property
    def gpus_per_rank(self) -> int:
        """GPUs of each rank where they can be divided evenly; 0: a node's ranks share all of its GPUs."""
        return 0 if self.gpus_per_node % self.ranks_per_node else self.gpus_per_node // self.ranks_per_node


_LEAST = {"nodes": 1, "ranks_per_node": 1, "cpus_per_rank": 1, "gpus_per_node": 0, "array": 0}


def parse_time(text: str) -> int:
    """Seconds of `HH:MM:SS`, `D-HH:MM:SS`, `90m`, `2h` or `1d`.

    Raises:
        ConfigError: anything else: plain numbers, since schedulers disagree about their unit, and no time at all.
    """
    seconds = 0
    if match := re.fullmatch(r"(\d+)([mhd])", text):
        seconds = int(match[1]) * _UNITS[match[2]]
    elif match := re.fullmatch(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)", text):
        days, hours, minutes, rest = (int(part or 0) for part in match.groups())
        seconds = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    if seconds == 0:
        raise ConfigError(f"--time '{text}' is not a time; write HH:MM:SS, D-HH:MM:SS, 90m, 2h or 1d")
    return seconds


def clock(seconds: int) -> str:
    """`HH:MM:SS`, which all schedulers but LSF take."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def clock_minutes(seconds: int) -> str:
    """`HH:MM` for LSF, rounded up."""
    minutes = -(-seconds // 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
