"""Known answers about model selection, found by their content in the folder that `--vectors` names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedhpc.report.original import original_trial, read_original
from fedhpc.report.results import SweepRecords

OWN = Path(__file__).resolve().parent / "domainbed"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "vectors" / "domainbed"


def roots(chosen: Path | None) -> list[Path]:
    """The chosen folder; without one our copies, and what may not be copied where it lies beside the repository."""
    return [chosen] if chosen else [OWN, *([SHARED / "selection"] if SHARED.is_dir() else [])]


def expectations(chosen: Path | None) -> list[Path]:
    """Files that say what selection gives on a set of records; each once."""
    found: dict[str, Path] = {}
    for root in roots(chosen):
        for path in sorted(root.rglob("*_expected.json")):
            if "methods" in json.loads(path.read_text(encoding="utf-8")):
                found.setdefault(path.name, path)
    return list(found.values())


def named(chosen: Path | None, pattern: str) -> list[Path]:
    """Files of a name below the chosen folder, or below our copies."""
    return sorted((chosen or OWN).rglob(pattern))


def records_of(expected: Path) -> SweepRecords:
    """The records that belong to a file of expectations: a folder of runs or one file of lines."""
    case = expected.name.removesuffix("_expected.json")
    folder = expected.with_name(f"{case}_sweep")
    if folder.is_dir():
        return read_original(folder)
    runs: dict[str, list[dict[str, Any]]] = {}
    for line in expected.with_name(f"{case}_records.jsonl").open(encoding="utf-8"):
        entry = json.loads(line)
        runs.setdefault(entry["run"], []).append(entry["record"])
    trials = (original_trial(records, run, finished=True) for run, records in runs.items())
    return SweepRecords(str(expected), tuple(t for t in trials if t is not None))
