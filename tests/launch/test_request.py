"""What can be asked for, and what is refused because no scheduler could do it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedhpc.errors import ConfigError
from fedhpc.launch import JobRequest, Site, parse_time
from tests.launch.cases import BASE


@pytest.mark.parametrize(
    ("text", "seconds"), [("02:00:00", 7200), ("1-00:00:00", 86400), ("90m", 5400), ("2h", 7200), ("1d", 86400)]
)
def test_times(text: str, seconds: int) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["90", "1:30", "", "2x", "-1h", "00:99:00", "0:00:00", "0m", "0-00:00:00"])
def test_times_that_schedulers_read_differently_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--time"):
        parse_time(text)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"array": 3}, "--array"),
        ({"array": -3, "mode": "sweep"}, "--array"),
        ({"nodes": 0}, "--nodes"),
        ({"gpus_per_node": -1}, "--gpus-per-node"),
        ({"seconds": 0}, "--time"),
        ({"scheduler": "cron"}, "--scheduler"),
        ({"scheduler": "pbs", "site": Site(launcher="srun")}, "launcher srun starts ranks under slurm, not under pbs"),
        ({"scheduler": "slurm", "site": Site(launcher="jsrun")}, "launcher jsrun starts ranks under lsf"),
    ],
)
def test_requests_that_make_no_sense_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        replace(BASE, **changes)


@pytest.mark.parametrize(
    ("site", "words"),
    [({"environment": ["nonsense"]}, "NAME=VALUE"), ({"account": 'a"b'}, "account"), ({"partition": " "}, "partition")],
)
def test_sites_that_make_no_sense_are_refused(site: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Site(**site)


@pytest.mark.parametrize(
    ("scheduler", "site", "launcher"),
    [
        ("slurm", {}, "mpirun"),
        ("slurm", {"launcher": "srun"}, "mpirun"),
        ("slurm", {"launcher": "mpiexec"}, "mpiexec"),
        ("pbs", {}, "mpirun"),
        ("slurm", {"launcher": "srun", "launcher_flags": ["--exact"]}, None),
        ("slurm", {"mpi": "mpich"}, None),
        ("lsf", {"launcher": "jsrun"}, None),
        ("flux", {}, None),
    ],
)
def test_survivors_go_on_under_mpirun_or_the_request_is_refused(
    scheduler: str, site: dict[str, Any], launcher: str | None
) -> None:
    def request() -> JobRequest:
        return replace(BASE, scheduler=scheduler, site=Site(**site), survive=True)

    if launcher is None:
        with pytest.raises(ConfigError, match=r"on_rank_loss: continue needs Open MPI's mpirun"):
            request()
    else:
        assert request().launcher == launcher
