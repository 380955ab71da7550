"""Scenarios over the real tables of HAM10000 and CheXpert; run as a program it prints what `docs/results` records.

    python -m tests.medical.real_tables HAM10000_metadata chexpert_train.csv.gz

Only tables are read, no image. HAM10000's is public; CheXpert's lies in PyPI's torchxrayvision.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fedhpc import registry
from fedhpc.data import _chexpert
from fedhpc.data._tables import read_table
from fedhpc.data.sources.base import RawDataset, ScanOptions
from fedhpc.data.table import SampleTable
from fedhpc.data.timeline import PARTS, Timeline
from fedhpc.errors import ConfigError
from fedhpc.medical.config import SCENARIOS

GROUPS: dict[str, dict[str, Any]] = {
    "2 ages": {"groups": ("age",)},
    "3 ages": {"groups": ("age",), "edges": (40.0, 60.0)},
    "5 ages": {"groups": ("age",), "edges": (30.0, 45.0, 60.0, 75.0)},
    "age x sex": {"groups": ("age", "sex")},
    "sex": {"groups": ("sex",)},
}
CLIENTS = (3, 5, 10, 50)
OTHERS: dict[str, dict[str, Any]] = {
    "clients of one group": {"clients": 4, "kinds": ("only:0", "only:1", "only:1", "spare")},
    "clients without a group": {"clients": 4, "kinds": ("missing:0", "missing:1", "balanced", "spare")},
    "naive": {"kind": "naive", "mixed": False},
    "repeated": {"kind": "repeated"},
    "group_ratios": {"kind": "group_ratios"},
    "group_incremental": {"kind": "group_incremental"},
    "class_incremental": {"kind": "class_incremental"},
    "novel_disease": {"kind": "novel_disease", "clients": 5, "holdout_fraction": 0.2},
    "clients by site": {"by_environment": True},
}


def ham_table(folder: Path) -> SampleTable:
    """HAM10000's table; `folder` holds a copy of it and is filled with empty images."""
    (name,) = (path.name for path in folder.iterdir() if path.name.startswith("HAM10000_metadata"))
    for row in read_table((folder / name).read_bytes(), name).rows:
        (folder / f"{row.cells[1]}.jpg").touch()  # a scan opens no image
    return table_of(registry.load("fedhpc.data.sources", "ham10000").SOURCE.scan(folder, ScanOptions()))


def chexpert_table(path: Path) -> SampleTable:
    """CheXpert's table as its source reads it, as if all images were there."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    tree: Any = SimpleNamespace(read=lambda name: content, listing=SimpleNamespace(files=["train.csv"]))
    intake = _chexpert.chexpert_samples(tree, "train.csv")
    files = [sample.path for sample in intake.samples]
    return table_of(intake.dataset(files, lambda item: np.zeros((1, 1, 1), np.uint8), _chexpert.CLASSES, ("x",)))


def table_of(dataset: RawDataset) -> SampleTable:
    """The table that a prepared dataset would have."""
    items = dataset.items
    units = {unit: code for code, unit in enumerate(dict.fromkeys(i.attributes["unit"] for i in items))}
    sexes = {"M": 0, "F": 1}
    return SampleTable(
        np.array([i.label for i in items]),
        np.array([i.environment for i in items]),
        np.array([i.split for i in items], dtype=np.uint8),
        {
            "age": np.array([i.attributes["age"] for i in items], dtype=np.float32),
            "sex": np.array([sexes.get(str(i.attributes["sex"]), -1) for i in items], dtype=np.int32),
            "unit": np.array([units[i.attributes["unit"]] for i in items], dtype=np.int32),
        },
        tuple(dataset.classes),
        tuple(dataset.environments),
    )


def equal_groups(table: SampleTable) -> SampleTable:
    """The table without as many training samples as it takes for both age groups to be equal (B3 of the original)."""
    old = table.attributes["age"] >= 60
    train = table.split == 0
    pools = [np.flatnonzero(train & old), np.flatnonzero(train & ~old)]
    surplus = max(pools, key=len)[min(map(len, pools)) :]
    kept = np.setdiff1d(np.arange(table.num_samples), surplus)
    attributes = {name: values[kept] for name, values in table.attributes.items()}
    return replace(
        table, labels=table.labels[kept], environment=table.environment[kept], split=table.split[kept],
        attributes=attributes,
    )  # fmt: skip


def make(table: SampleTable, kind: str = "localized", **options: Any) -> Timeline:
    """A scenario of the mode `fixed`, seed 13."""
    timeline: Timeline = registry.load(SCENARIOS, kind).SCENARIO(**options).timeline(table, 13)
    return timeline


def accounted(timeline: Timeline) -> int:
    """Samples in a task, in the hold-out, or reported as unused; copies in later tasks count once."""
    inside = sum(len(np.unique(np.concatenate(client))) for part in PARTS for client in getattr(timeline, part))
    return inside + len(timeline.holdout) + sum(timeline.unused.values())


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and options of every scenario that is recorded."""
    for name, options in GROUPS.items():
        for clients in CLIENTS:
            yield f"localized, {name}, K = {clients}", {**options, "clients": clients}
    yield from OTHERS.items()


def main(ham: str, chexpert: str) -> None:
    """Print a Markdown table for each dataset."""
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ham, Path(folder) / "HAM10000_metadata.csv")
        tables = {"HAM10000": ham_table(Path(folder)), "CheXpert": chexpert_table(Path(chexpert))}
    for name, table in tables.items():
        units = len(np.unique(table.attributes["unit"]))
        print(f"\n## {name}: {table.num_samples:,} samples, {units:,} units\n")
        print("| scenario | groups | samples of a client | used twice | shared units | not used |")
        print("|---|---|---|---|---|---|")
        for case, options in [*cases(), ("equal groups, K = 10", {"equal": True})]:
            print(_line(case, equal_groups(table) if options.pop("equal", False) else table, options))


def _line(case: str, table: SampleTable, options: dict[str, Any]) -> str:
    try:
        timeline = make(table, **options)
    except ConfigError as error:
        return f"| {case} | refused: {error} | | | | |"
    assert accounted(timeline) == table.num_samples
    sizes = [len(np.unique(np.concatenate(tasks))) for tasks in timeline.train]
    twice = 0 if options.get("kind") == "repeated" else sum(timeline.duplicates().values())
    unused = "; ".join(f"{count:,} of {reason}" for reason, count in timeline.unused.items()) or "none"
    shared = timeline.shared_units(table.attributes["unit"], PARTS)
    groups = len(timeline.group_names)
    return f"| {case} | {groups} | {min(sizes):,} to {max(sizes):,} | {twice} | {shared} | {unused} |"


if __name__ == "__main__":
    main(*sys.argv[1:])
