"""From a sweep's folder, ours or DomainBed's, to its tables under each criterion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedhpc.errors import ConfigError
from fedhpc.report.held_out import held_out_tables
from fedhpc.report.original import is_original_sweep, read_original
from fedhpc.report.results import Averages, SweepRecords, Table, averages, tables
from fedhpc.report.selection import Criterion, criteria
from fedhpc.report.trial_files import is_sweep, read_sweep


@dataclass(frozen=True)
class SweepResults:
    """A sweep's tables under each criterion.

    Attributes:
        sweep: what they were made from.
        criteria: the criteria, by name, in order.
        tables: by criterion: of each dataset, then of environments that were held out together.
        averages: by criterion.
        compat: whether DomainBed's rules were followed.
    """

    sweep: SweepRecords
    criteria: Mapping[str, Criterion]
    tables: Mapping[str, tuple[Table, ...]]
    averages: Mapping[str, Averages]
    compat: bool


def reads(directory: Path) -> bool:
    """Whether a directory holds a sweep, ours or DomainBed's."""
    return directory.is_dir() and (is_sweep(directory) or is_original_sweep(directory))


def load(directory: Path) -> SweepRecords:
    """Read a sweep, ours or DomainBed's.

    Raises:
        ConfigError: the directory holds neither.
        FedhpcError: its plan cannot be read.
    """
    if not directory.is_dir():
        raise ConfigError(f"{directory}: no such directory")
    return read_sweep(directory) if is_sweep(directory) else read_original(directory)


def results(sweep: SweepRecords, names: Sequence[str] | None = None, compat: bool = False) -> SweepResults:
    """Select and tabulate.

    Args:
        sweep: the records.
        names: criteria; None: those that the sweep was made for, else all.
        compat: follow DomainBed's rules instead of ours (see `report.selection`).
    """
    chosen = criteria(names or sweep.criteria or None, compat)
    found = {
        name: (*tables(sweep, criterion, name), *held_out_tables(sweep, criterion, name))
        for name, criterion in chosen.items()
    }
    means = {name: averages(found[name], name, whole=not compat) for name in found}
    return SweepResults(sweep, chosen, found, means, compat)
