"""A cluster on one machine: Slurm with three nodes, and hosts with their own network that can be cut off."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, os.fspath(Path(__file__).parent))

import virtual

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test of this folder the mark `cluster`."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def cluster() -> Iterator[virtual.Cluster]:
    """The cluster, up for the session; nothing of it is left running afterwards."""
    missing = virtual.what_is_missing()
    if missing:
        pytest.skip(missing)
    made = virtual.Cluster()
    try:
        yield made
    finally:
        left = made.down()
        assert not left, f"still there after the cluster went down: {left}"


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> str:
    """`weights_sha256` of the short run on one process, undisturbed."""
    out = tmp_path_factory.mktemp("reference") / "run"
    done = subprocess.run(
        [sys.executable, "-m", "fedhpc", *virtual.run_words(out)],
        cwd=virtual.REPOSITORY,
        env=virtual.environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return virtual.sha(out)


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Path]:
    """A run directory that all hosts see, removed when the test has passed its files on."""
    yield tmp_path / "run"
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
