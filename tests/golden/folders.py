"""Where known-answer tests find their cases."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def vector_folder(config: pytest.Config, default: str) -> Path:
    """The folder to read: `--vectors DIR`, or its subfolder of the default's name, or the copy beside this file."""
    given: Path | None = config.getoption("--vectors")
    if given is None:
        return HERE / default
    return given / default if (given / default).is_dir() else given
