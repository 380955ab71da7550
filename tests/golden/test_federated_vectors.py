"""Every federated known-answer case, every round, through the real engine: on one rank here, on 2 and 4 by mpirun."""

from __future__ import annotations

from pathlib import Path

import fl_cases
import launcher
import pytest
from folders import HERE, vector_folder

from fedhpc.comm.world import SoloWorld

FlCase = tuple[Path, str, str]


def test_case_matches_every_round(fl_case: FlCase) -> None:
    folder, name, kind = fl_case
    play = fl_cases.play if kind == "case" else fl_cases.play_quadratic
    differences = play(SoloWorld(), folder, name)
    assert differences is not None
    assert differences.found == []


def test_default_grid_keeps_every_round_within_tolerance(fl_case: FlCase) -> None:
    folder, name, kind = fl_case
    if kind != "case":
        pytest.skip("quadratic trajectories run on the default grid anyway")
    differences = fl_cases.play(SoloWorld(), folder, name, grid_bits=fl_cases.DEFAULT_GRID)
    assert differences is not None
    assert differences.found == []


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 4])
def test_all_cases_match_on_several_ranks(ranks: int, pytestconfig: pytest.Config) -> None:
    folder = vector_folder(pytestconfig, "federated")
    if not fl_cases.cases_in(folder):
        pytest.skip(f"no federated cases in {folder}")
    done = launcher.mpirun(ranks, [HERE / "fl_cases.py", folder], timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("largest") == len(fl_cases.cases_in(folder))
