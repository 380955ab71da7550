"""Fixtures for the whole suite."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


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
