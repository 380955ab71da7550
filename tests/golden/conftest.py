"""Known-answer tests take their cases from the folder that `--vectors` names, by default from the copies here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "mpi")]

import fl_cases  # noqa: E402
import launcher  # noqa: E402
from folders import vector_folder  # noqa: E402


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize `fl_case` over the federated cases of the folder."""
    if "fl_case" in metafunc.fixturenames:
        folder = vector_folder(metafunc.config, "federated")
        found = fl_cases.cases_in(folder)
        metafunc.parametrize("fl_case", [(folder, *item) for item in found.items()], ids=list(found))


@pytest.fixture(autouse=True)
def no_job_left_behind() -> Iterator[None]:
    """Kill what a test left running."""
    yield
    launcher.kill_leftovers()
