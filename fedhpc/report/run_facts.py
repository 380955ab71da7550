"""What files beside a run's records say of its data; whatever they hold, they are not what makes a report fail."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PARTITION, SCENARIO = "partition.json", "scenario.json"


@dataclass(frozen=True)
class DataFacts:
    """Of a run's data; None is "not known".

    Attributes:
        test_samples: of all clients.
        digest: tells the dataset from others of its name.
        tasks: how many there are in a medical run.
    """

    test_samples: int | None = None
    digest: str | None = None
    tasks: int | None = None


def data_facts(run: Path) -> DataFacts:
    """Read what a run directory says of its data."""
    partition, scenario = _object(run / PARTITION), _object(run / SCENARIO)
    digest, tasks = partition.get("data") or scenario.get("data"), scenario.get("tasks")
    return DataFacts(
        _test_samples(partition.get("clients")),
        digest if isinstance(digest, str) else None,
        tasks if isinstance(tasks, int) else None,
    )


def _test_samples(clients: Any) -> int | None:
    found = [c.get("num_test") for c in clients if isinstance(c, Mapping)] if isinstance(clients, list) else []
    counts = [n for n in found if isinstance(n, int)]
    return sum(counts) if counts and len(counts) == len(found) else None


def _object(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
