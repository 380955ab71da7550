from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.data.shard_folder import write


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset folder; read only."""
    return write(tmp_path_factory.mktemp("made") / "d")


@pytest.fixture
def dataset(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(made, tmp_path / "d"))
