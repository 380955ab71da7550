from __future__ import annotations

import pytest

from fedhpc.config import load_config
from fedhpc.errors import ConfigError

MINIMAL = "rounds: 3\npartition: {kind: iid, clients: 4}\n"
"""The least that a run's configuration says."""


def problem(path: str, *overrides: str) -> str:
    """What is said about a configuration that is refused."""
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    message = str(caught.value)
    assert message.count("\n") <= 1
    assert len(message) < 700
    return message
