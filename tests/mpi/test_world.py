"""The world on real ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from launcher import mpirun

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_collectives_exchange_and_agree_hold_also_in_tiny_chunks(ranks: int) -> None:
    done = mpirun(ranks, [PROGRAMS / "world_cases.py"])
    assert done.returncode == 0, done.stderr
    assert f"all held on {ranks}" in done.stdout
