"""Reports over run directories: records in, tables and plots out; neither torch nor MPI, so a login node will do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedhpc.errors import ConfigError
from fedhpc.report.collect import RunSummary, collect, find_runs
from fedhpc.report.files import write_files
from fedhpc.report.studies import study_notes, with_notes
from fedhpc.report.tables import csv_table, json_summary, latex_table, text_table
from fedhpc.report.traffic import traffic_csv, traffic_table

__all__ = ["ReportFiles", "RunSummary", "collect", "find_runs", "report"]


@dataclass(frozen=True)
class ReportFiles:
    """What a report wrote, and its text for the terminal.

    Attributes:
        directory: where the files lie.
        files: all of them: summary.json, summary.txt, summary.csv, summary.tex, accuracy_rounds and accuracy_seconds
            as PNG and SVG; traffic.csv where traffic was recorded; of medical runs also medical.txt, .csv, .tex, .json,
            medical_tasks.csv and their figures; report.html shows all of it.
        notes: which runs of a study are missing, and what runs them.
        text: the content of summary.txt (of a single run with its traffic), and of medical.txt.
        runs: the summaries.
    """

    directory: Path
    files: tuple[Path, ...]
    text: str
    runs: tuple[RunSummary, ...]
    notes: tuple[str, ...] = ()


def report(
    directories: Sequence[Path], out: Path | None = None, style: str = "fedhpc", links: Sequence[str] = ()
) -> ReportFiles:
    """Report on the runs in some directories; a directory of runs (two levels deep at most) counts as its runs.

    The files go to `out`; without it to `report` in the directory, or, of several directories, in the one that they
    have in common. A report that lies there is replaced; nothing else is touched. With the style `fedmedicl` medical
    runs get the original's log files, too. `links` are pages that will lie beside this one.

    Raises:
        ConfigError: a directory does not exist or holds no run; nothing in common and no `out`; the style
            `fedmedicl` without a medical run.
        FedhpcError: the report cannot be written.
    """
    if not directories:
        raise ConfigError("report needs at least one run directory")
    places = find_runs(directories)
    runs = collect(places)
    medical, more = _medical(places, directories, style)
    if style == "fedmedicl" and not more:
        raise ConfigError("--style fedmedicl is for medical runs, and there is none")
    target = out if out is not None else _default_out(directories)
    notes = study_notes(directories)
    text, traffic = text_table(runs), traffic_csv(runs)
    text += "".join(f"note: {note}\n" for note in notes)
    if len(runs) == 1:
        text += traffic_table(runs[0])
    contents = {
        "summary.json": with_notes(json_summary(runs), notes).encode(),
        "summary.txt": text.encode(),
        "summary.csv": csv_table(runs).encode(),
        "summary.tex": latex_table(runs).encode(),
        **({"traffic.csv": traffic.encode()} if traffic else {}),
        **_plots(runs),
        **more,
    }
    files = write_files(target, contents, f"Report on {_names(places)}", links=links)
    return ReportFiles(target, files, f"{text}\n{medical}" if medical else text, tuple(runs), tuple(notes))


def _medical(runs: Sequence[Path], places: Sequence[Path], style: str) -> tuple[str, dict[str, bytes]]:
    from fedhpc.report.medical_report import medical_files  # numpy

    return medical_files(runs, places, style)


def _plots(runs: Sequence[RunSummary]) -> dict[str, bytes]:
    from fedhpc.report.plots import accuracy_plots  # matplotlib: half a second

    return accuracy_plots(runs)


def _default_out(directories: Sequence[Path]) -> Path:
    if len(directories) == 1:
        return directories[0] / "report"
    common = Path(os.path.commonpath([directory.resolve() for directory in directories]))
    if common == Path(common.anchor):
        raise ConfigError("the runs have no directory in common; say where the report goes with --out")
    return common / "report"


def _names(runs: Sequence[Path]) -> str:
    shown = ", ".join(run.name for run in runs[:3])
    return f"{shown} and {len(runs) - 3} more runs" if len(runs) > 3 else shown
