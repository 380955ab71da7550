"""Where the FedMedICL vectors lie: kinds of files are told by content."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.folders import vector_folder

KINDS = {
    "formulas": lambda d: isinstance(d.get("data"), dict) and "imbalance_scenarios" in d["data"],
    "splits": lambda d: isinstance(d.get("cases"), dict) and all("scenario_lists" in c for c in d["cases"].values()),
    "samplers": lambda d: isinstance(d.get("cases"), list) and all("kinds" in c for c in d["cases"]),
    "metrics": lambda d: isinstance(d.get("cases"), list) and all("logits" in c for c in d["cases"]),
    "primitives": lambda d: "swad" in d or "fedavg" in d,
    "cohend_contrast": lambda d: "cohens_d" in d,
}


def folder_of(config: pytest.Config) -> Path:
    return vector_folder(config, "fedmedicl")


def find(folder: Path, kind: str) -> dict[str, Any]:
    for path, content in contents(folder):
        if KINDS[kind](content):
            return {"__file__": path, **content}
    pytest.skip(f"no {kind} vectors in {folder}")


@functools.cache
def contents(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    found = [(path, json.loads(path.read_text())) for path in sorted(folder.rglob("*.json"))]
    return [(path, content) for path, content in found if isinstance(content, dict)]
