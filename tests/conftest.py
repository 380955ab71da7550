"""Fixtures for the whole suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded: small tensors gain nothing from more

REPOSITORY = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Folders to run the hostile-file and known-answer tests on; here because only this file is read early enough."""
    parser.addoption("--hostile", type=Path, help="folder with awkward files and a manifest.csv")
    parser.addoption("--vectors", type=Path, help="folder with known-answer vectors")


def shared_folder(name: str) -> Path:
    """A folder of the materials that lie beside the repository; skips the test where they are absent."""
    folder = REPOSITORY.parent / "shared" / name
    if not folder.exists():
        pytest.skip(f"needs {name} of the shared materials beside the repository")
    return folder


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data packs in their original layouts."""
    return shared_folder("data")
