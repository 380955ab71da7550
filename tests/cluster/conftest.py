"""A cluster on one machine: Slurm with three nodes, and hosts with their own network that can be cut off."""

from __future__ import annotations

import os
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


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Wait for whoever has the cluster before the first test begins, as its time limit would count the waiting."""
    wanted = any(item.path.is_relative_to(HERE) for item in session.items) and not session.config.option.collectonly
    if wanted and not virtual.what_is_missing():
        reporter = session.config.pluginmanager.getplugin("terminalreporter")
        try:
            virtual.claim(tell=reporter.write_line if reporter else print)
        except TimeoutError as error:
            pytest.exit(str(error), returncode=1)


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, virtual.Process]]:
    """The short and the long run on one process each, undisturbed; they run beside whatever comes first."""
    folder = tmp_path_factory.mktemp("alone")
    words = {"short": virtual.SHORT, "long": virtual.LONG}
    command = [sys.executable, "-m", "fedhpc", "run", str(virtual.CONFIG), "--out"]
    runs = {
        name: virtual.Process([*command, str(folder / name), *options], virtual.environment(), folder / f"{name}.log")
        for name, options in words.items()
    }
    yield runs
    for run in runs.values():
        run.kill()
        run.wait()


def _sha(run: virtual.Process) -> str:
    assert run.wait(timeout=120) == 0, run.text
    return virtual.sha(run.log.with_suffix(""))


@pytest.fixture(scope="session")
def reference(alone: dict[str, virtual.Process]) -> str:
    """`weights_sha256` of the short run."""
    return _sha(alone["short"])


@pytest.fixture(scope="session")
def undisturbed(alone: dict[str, virtual.Process]) -> str:
    """`weights_sha256` of the long run."""
    return _sha(alone["long"])


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[virtual.Cluster]:
    """The cluster, up for the session; nothing of it is left running afterwards."""
    missing = virtual.what_is_missing()
    if missing:
        pytest.skip(missing)
    request.getfixturevalue("alone")
    made = virtual.Cluster()
    try:
        yield made
    finally:
        left = made.down()
        assert not left, f"still there after the cluster went down: {left}"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A run directory that all hosts see."""
    return tmp_path / "run"
