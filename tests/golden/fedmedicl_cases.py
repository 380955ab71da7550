"""Where the FedMedICL vectors lie: every file of the folder is read, and kinds of cases are told by content."""

from __future__ import annotations

import csv
import functools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.folders import vector_folder

Case = dict[str, Any]

FILE = "__file__"
"""Key under which a case says where it comes from."""


def folder_of(config: pytest.Config) -> Path:
    return vector_folder(config, "fedmedicl")


def cases_of(folder: Path, section: str, *marks: str) -> list[Case]:
    """All cases of a section in all files, each with its file and, where it has one, its `name`; skip without any.

    Args:
        folder: where the files lie.
        section: the key that holds them, at the top of a file or below `data`.
        marks: keys that such a case has; what lacks one is of another kind.
    """
    return found_cases(folder, section, *marks) or pytest.skip(f"no {section} cases in {folder}")


def found_cases(folder: Path, section: str, *marks: str) -> list[Case]:
    """The same, but empty without any."""
    found = []
    for path, content in contents(folder):
        inner = content.get("data")
        for part in (content, inner if isinstance(inner, dict) else {}):
            found += [
                {FILE: path, **case}
                for case in _listed(part.get(section))
                if isinstance(case, dict) and all(mark in case for mark in marks)
            ]
    return found


def _listed(part: Any) -> list[Any]:
    """A list as it is, a dict of cases with their names, a single case alone."""
    if isinstance(part, dict):
        if part and all(isinstance(case, dict) for case in part.values()):
            return [{"name": name, **case} for name, case in part.items()]
        return [part]
    return part if isinstance(part, list) else []


@functools.cache
def contents(folder: Path) -> list[tuple[Path, Case]]:
    found = [(path, json.loads(path.read_text())) for path in sorted(folder.rglob("*.json"))]
    return [(path, content) for path, content in found if isinstance(content, dict)]


@functools.cache
def tables(folder: Path) -> list[tuple[Path, list[dict[str, str]]]]:
    """All CSV files of a folder."""
    found = []
    for path in sorted(folder.rglob("*.csv")):
        with path.open(newline="") as file:
            found.append((path, list(csv.DictReader(file))))
    return found
