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
_UNITS = {"m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Site(Section):
    """A cluster, as a YAML file of `launch/sites` describes it; texts are shell and may use its variables."""

    mpi: Annotated[Literal["openmpi", "mpich", "cray"], "the family of the MPI library that mpi4py was built for"] = (
        "openmpi"
    )
    launcher: Annotated[Launcher | None, "what starts the ranks; null: srun, mpirun or flux, by the scheduler"] = None
    launcher_flags: Annotated[list[str], "more words for the launcher"] = field(default_factory=list)
    modules: Annotated[list[str], "modules to load"] = field(default_factory=list)
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


@dataclass(frozen=True)
class JobRequest:
    """One job, or an array of jobs that share one directory.

    Attributes:
        scheduler: slurm, pbs, lsf or flux.
        mode: run, study or sweep.
        command: words after `fedhpc`, without `--out`; `"$1"` and the like are left to the shell.
        out: directory of the run, study or sweep.
        script: where the script is kept, for handing it in again.
        nodes: number of nodes.
        ranks_per_node: MPI ranks on each.
        cpus_per_rank: cores of each rank.
        gpus_per_node: GPUs of each node.
        seconds: time limit, or None for the site's default.
        array: members of the array, 0 for a single job.
        stage: data directory to copy to node-local disk first, or None.
        directory: where the job runs.
        log: name of the log, or None for one in `out`.
        title: name of the job, or None to take it from `out`.
        survive: survivors of a lost rank go on (Open MPI's mpirun only).
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
    stage: str | None = None
    log: str | None = None
    title: str | None = None
    survive: bool = False
    site: Site = field(default_factory=Site)

    def __post_init__(self) -> None:
        for name in ("nodes", "ranks_per_node", "cpus_per_rank"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(self, name)}")
        if self.scheduler not in SCHEDULERS:
            raise ConfigError(f"--scheduler must be one of {', '.join(SCHEDULERS)}, got '{self.scheduler}'")
        if self.array and self.mode == "run":
            raise ConfigError("--array is for studies and sweeps, whose jobs share one directory; a run has one job")

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
        """What starts the ranks."""
        if self.survive and self.site.launcher is None and self.site.mpi == "openmpi":
            return "mpirun"
        return self.site.launcher or _LAUNCHERS[self.scheduler]


def parse_time(text: str) -> int:
    """Seconds of `HH:MM:SS`, `D-HH:MM:SS`, `90m`, `2h` or `1d`.

    Raises:
        ConfigError: anything else, plain numbers among them: schedulers disagree about their unit.
    """
    if match := re.fullmatch(r"(\d+)([mhd])", text):
        return int(match[1]) * _UNITS[match[2]]
    if match := re.fullmatch(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)", text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    raise ConfigError(f"--time '{text}' is not a time; write HH:MM:SS, D-HH:MM:SS, 90m, 2h or 1d")


def clock(seconds: int) -> str:
    """`HH:MM:SS`, which all four schedulers take (LSF without the seconds)."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
