"""Run summaries as text, CSV, LaTeX and JSON. What is not known is a dash (text), empty (CSV) or null (JSON)."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import fedhpc
from fedhpc.report.collect import RunSummary
from fedhpc.report.run_notes import CAPTION, notes

FORMAT = 1
MISSING = "-"
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Column:
    """One figure of a table: its title, its unit (empty: none), how it is read from a run and written.

    What is read may be a word in place of a number (`not reached`); only text and LaTeX show it.
    """

    key: str
    title: str
    unit: str
    read: Callable[[RunSummary], Any]
    show: Callable[[Any], str] = str
    text: bool = False


def _final(figure: str) -> Callable[[RunSummary], float | None]:
    return lambda run: getattr(run.final, figure) if run.final else None


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _seconds(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _reached(part: str) -> Callable[[RunSummary], Any]:
    def read(run: RunSummary) -> Any:
        if run.time_to_accuracy is not None:
            return run.time_to_accuracy[part]
        if run.target_accuracy is None or run.status == "damaged":
            return None
        return "not reached" if run.status == "finished" else "not yet"

    return read


def _or_word(show: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: value if isinstance(value, str) else show(value)


APART = (
    Column("objective", "objective", "", lambda r: r.objective, text=True),
    Column("lr", "lr", "", lambda r: r.lr, lambda value: f"{value:g}"),
    Column("seed", "seed", "", lambda r: r.seed),
    Column("model", "model", "", lambda r: r.model, text=True),
    Column("dataset", "dataset", "", lambda r: r.dataset, text=True),
    Column("partition", "partition", "", lambda r: r.partition, text=True),
    Column("test_envs", "held out", "", lambda r: ",".join(map(str, r.test_envs)) or None, text=True),
    Column("test_samples", "test samples", "", lambda r: r.test_samples),
)
"""What tells runs apart: shown of several only where they differ."""
_FIRST = (
    Column("run", "run", "", lambda r: r.name, text=True),
    Column("algorithm", "algorithm", "", lambda r: r.algorithm, text=True),
)
_REST = (
    Column("clients", "clients", "", lambda r: r.clients),
    Column("ranks", "ranks", "", lambda r: r.ranks),
    Column("rounds", "rounds", "", lambda r: r.rounds),
    Column("rounds_planned", "planned", "", lambda r: r.rounds_planned),
    Column("accuracy", "accuracy", "%", lambda r: r.final_client_accuracy, _percent),
    Column("min", "min", "%", _final("min"), _percent),
    Column("worst_decile", "worst tenth", "%", _final("worst_decile"), _percent),
    Column("std", "client std", "%", _final("std"), _percent),
    Column("target", "target", "%", lambda r: r.target_accuracy, _percent),
    Column("target_round", "at target", "round", _reached("round")),
    Column("target_seconds", "at target", "s", _reached("seconds"), _or_word(_seconds)),
    Column("seconds_train", "train", "s", lambda r: r.seconds_train, _seconds),
    Column("seconds_evaluate", "evaluate", "s", lambda r: r.seconds_evaluate, _seconds),
    Column("seconds_per_round", "per round", "s", lambda r: r.seconds_per_round, _seconds),
    Column("wait_share", "waiting", "%", lambda r: r.wait_share, _percent),
    Column("communicate_share", "communicating", "%", lambda r: r.communicate_share, _percent),
    Column("read_share", "reading", "%", lambda r: r.read_share, _percent),
    Column("status", "status", "", lambda r: r.status, text=True),
)
COLUMNS = (*_FIRST, *APART, *_REST)


def _columns(runs: Sequence[RunSummary]) -> list[Column]:
    """The columns of a table of several runs."""
    return [*_FIRST, *(c for c in APART if len({c.read(run) for run in runs}) > 1), *_REST]


def _cell(column: Column, run: RunSummary) -> str:
    value = column.read(run)
    return MISSING if value is None else column.show(value)


def text_table(runs: Sequence[RunSummary]) -> str:
    """The runs as text: one run as a list of figures, several side by side, and below what is wrong or missing."""
    body = _list(runs[0]) if len(runs) == 1 else _grid(runs)
    return "\n".join([*body, "", CAPTION, *notes(runs)]) + "\n"


def _list(run: RunSummary) -> list[str]:
    known = (c for c in APART if c.read(run) is not None)
    rows = [(f"{c.title} ({c.unit})" if c.unit else c.title, _cell(c, run)) for c in (*_FIRST, *known, *_REST)]
    rows += [("evaluated", run.evaluated_model)] if run.evaluated_model else []
    width = max(len(title) for title, _ in rows)
    return [f"{title:<{width}}  {value}" for title, value in rows]


def _grid(runs: Sequence[RunSummary]) -> list[str]:
    columns = _columns(runs)
    lines = [[c.title for c in columns], [c.unit for c in columns], *([_cell(c, r) for c in columns] for r in runs)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    lines.insert(2, ["-" * width for width in widths])
    return [
        "  ".join(
            f"{t:<{w}}" if c.text else f"{t:>{w}}" for c, t, w in zip(columns, line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]


def csv_table(runs: Sequence[RunSummary]) -> str:
    """The runs as CSV: one line a run, accuracies as fractions, times in seconds, nothing where nothing is known."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([c.key for c in COLUMNS])
    for run in runs:
        values = ((c, c.read(run)) for c in COLUMNS)
        writer.writerow(["" if v is None or (isinstance(v, str) and not c.text) else v for c, v in values])
    return out.getvalue()


def latex_table(runs: Sequence[RunSummary]) -> str:
    """The runs as a LaTeX tabular (needs the package booktabs), below comments that say what a caption should."""
    hidden = ("ranks", "wait_share", "communicate_share", "read_share", "status")
    columns = [c for c in _columns(runs) if c.key not in hidden]
    rows = [[_cell(c, run).translate(_LATEX) for c in columns] for run in runs]
    head = [f"{c.title} ({c.unit})" if c.unit else c.title for c in columns]
    marks = [
        " (unfinished)" if r.status == "unfinished" else " (damaged)" if r.status == "damaged" else "" for r in runs
    ]
    for row, mark in zip(rows, marks, strict=True):
        row[0] += mark
    lines = [f"% {' '.join(line.split())}" for line in (CAPTION, *notes(runs))]
    lines += [r"\begin{tabular}{" + "".join("l" if c.text else "r" for c in columns) + "}", r"\toprule"]
    lines += [" & ".join(h.translate(_LATEX) for h in head) + r" \\", r"\midrule"]
    lines += [" & ".join("--" if cell == MISSING else cell for cell in row) + r" \\" for row in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def json_summary(runs: Sequence[RunSummary]) -> str:
    """Everything that is known about the runs as JSON; null where nothing is known."""
    trees = [dataclasses.asdict(dataclasses.replace(run, settings={})) for run in runs]  # config.yaml has them
    for found in trees:
        del found["settings"]
    tree = {"format": FORMAT, "fedhpc": fedhpc.__version__, "runs": trees, "notes": list(notes(runs))}
    return json.dumps(tree, indent=1, allow_nan=False) + "\n"
