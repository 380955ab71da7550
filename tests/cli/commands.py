"""Runs a command in the process of the test."""

from __future__ import annotations

import pytest

from fedhpc.cli import main


def fedhpc_(*words: object) -> int:
    """Run a command in this process and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        main([str(w) for w in words])
    assert isinstance(ended.value.code, int)
    return ended.value.code
