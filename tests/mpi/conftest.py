"""MPI tests: each starts real mpirun jobs through `launcher`; nothing of them outlives the test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, os.fspath(Path(__file__).parent))

import launcher

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test of this folder the mark `mpi`."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.mpi)


@pytest.fixture(autouse=True)
def no_job_left_behind() -> Iterator[None]:
    """Kill what a test left running."""
    yield
    launcher.kill_leftovers()
