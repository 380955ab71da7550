"""The records and texts that belong to an expectation of model selection."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from fedhpc.report.original import RESULTS, original_trial, read_original
from fedhpc.report.results import SweepRecords
from tests.golden.domainbed_cases import Case, cases, stem


def records_of(case: Case) -> SweepRecords:
    """The records that belong to an expectation: those of its stem, else those that it counts."""
    sweeps = sweeps_below(case.root)
    assert sweeps, f"no records below {case.root}"
    alike = [(path, sweep) for path, sweep in sweeps if stem(path) == case.stem]
    return max(alike or sweeps, key=lambda entry: (_counts(case, entry[1]), _likeness(case.path, entry[0])))[1]


@lru_cache
def sweeps_below(root: Path) -> tuple[tuple[Path, SweepRecords], ...]:
    """All sweeps below a folder: files of lines that name their run, and folders of runs."""
    return (*_files_of_lines(root), *((folder, read_original(folder)) for folder in _folders_of_runs(root)))


def _files_of_lines(root: Path) -> Iterator[tuple[Path, SweepRecords]]:
    for found in cases(root)["swept_records_case"]:
        runs: dict[str, list[dict[str, Any]]] = {}
        for entry in found.facts:
            runs.setdefault(entry["run"], []).append(entry["record"])
        trials = (original_trial(records, run, finished=True) for run, records in runs.items())
        yield found.path, SweepRecords(str(found.path), tuple(t for t in trials if t is not None))


def _folders_of_runs(root: Path) -> list[Path]:
    return sorted({file.parent.parent for file in root.rglob(f"*/{RESULTS}") if file.parent != root})


def _counts(case: Case, sweep: SweepRecords) -> int:
    """How much of what an expectation says about its records holds of these."""
    names = {dataset for method in case.facts["methods"].values() for dataset in method["per_dataset"]}
    found = len(sweep.trials), sweep.num_records, len(sweep.datasets())
    wanted = case.facts["total_runs"], case.facts["total_records"], len(names)
    return sum(a == b for a, b in zip(found, wanted, strict=True))


def _likeness(path: Path, other: Path) -> tuple[bool, int]:
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(path.name, other.name, strict=False))
    return path.parent == other.parent, len(list(alike))


def text_of(case: Case, suffix: str) -> str | None:
    """The whole report (.txt) or its tables (.tex) that belong to an expectation, None without one."""
    head = f"Total records: {case.facts['total_records']}\n" if suffix == ".txt" else ""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(case.root.rglob(f"*{suffix}"))}
    alike = [text for path, text in texts.items() if stem(path) == case.stem]
    counted = [text for text in texts.values() if head and text.startswith(head)]
    return next(iter(alike or counted), None)
