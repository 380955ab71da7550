"""Ranks inside a container: the words that enter it stand between the launcher and the program."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import pytest

from fedhpc.launch import Site, render
from tests.launch.cases import BASE

ENTER = ["apptainer", "exec", "--nv", "/images/fed hpc.sif"]


@pytest.mark.parametrize(
    ("scheduler", "launcher", "first"),
    [
        ("slurm", "srun", "srun --mpi=pmix"),
        ("pbs", "mpirun", "mpirun"),
        ("lsf", "jsrun", "jsrun"),
        ("flux", "flux", "flux"),
    ],
)
def test_every_launcher_starts_the_container_which_starts_fedhpc(scheduler: str, launcher: str, first: str) -> None:
    job = replace(BASE, scheduler=scheduler, site=Site(launcher=launcher, launcher_flags=ENTER, scratch="/local"))
    text = render(replace(job, stage=(("--data.root", "/data/pacs"),)))
    (line,) = re.findall(r"^launcher=.*$", text, re.M)
    show = f'passed_on=()\n{line}\nprintf "%s\\n" "${{launcher[@]}}"'
    words = subprocess.run(["bash", "-c", show], capture_output=True, text=True, check=True).stdout.splitlines()
    assert words[-len(ENTER) :] == ENTER
    assert " ".join(words).startswith(first)
    # Outside the container there may be no fedhpc.
    assert '"${launcher[@]}" "${command[@]}"' in text
    assert '"${launcher[@]}" fedhpc stage' in text
    assert not re.search(r"^\s*fedhpc ", text, re.M)
