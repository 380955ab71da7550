"""Tables of medical runs: text, LaTeX and CSV, joined over seeds."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedhpc.report.ltr import confidence_interval, imbalance_factor
from fedhpc.report.medical import NOT_KNOWN, MedicalRun
from fedhpc.report.medical_groups import by_title
from fedhpc.report.medical_scores import MAIN, Score, all_scores, mean_matrix, training_counts

_ERROR = "± half of the 95 % t-interval over seeds (none of one seed)"
_NOTE = f"percent, mean over seeds {_ERROR}; group gap: best minus worst on the hold-out, without a group '{NOT_KNOWN}'"
_LOCAL = "local: mean over clients and evaluated tasks after the last task; local and hold-out leave absent classes out"


def medical_table(runs: Sequence[MedicalRun]) -> str:
    """One line per recipe: percent, mean over seeds and half the width of its 95 % confidence interval."""
    lines = [["recipe", "seeds", *(score.title for score in MAIN)]]
    for title, same in by_title(runs).items():
        lines.append([title, _seeds(same), *(_cell(score, same) for score in MAIN)])
    return "\n".join([*_grid(lines), "", _NOTE]) + "\n"


def details_table(runs: Sequence[MedicalRun]) -> str:
    """One line per score, one column per recipe."""
    several = by_title(runs)
    lines = [["score", *several]]
    lines += [[s.title, *(_cell(s, same) for same in several.values())] for s in all_scores(runs) if s not in MAIN]
    return "\n".join([*_grid(lines), "", f"mean over seeds {_ERROR}; {_LOCAL}"]) + "\n"


def matrix_table(runs: Sequence[MedicalRun]) -> str:
    """LTR R[i][j] of every recipe: a line per trained task, a column per evaluated one, and the cumulative score."""
    blocks = []
    for title, same in by_title(runs).items():
        matrix = 100 * mean_matrix(same)
        if len(matrix):
            series = [found for run in same if len(found := run.cumulative())]  # a run may have no scores yet
            means = [confidence_interval([found[t] for found in series])[0] for t in range(len(matrix))]
            lines = [[f"{title}: after task", *(f"on {j + 1}" for j in range(len(matrix))), "A_t"]]
            lines += [
                [str(i + 1), *map(_number, row), _number(100 * mean)]
                for i, (row, mean) in enumerate(zip(matrix, means, strict=True))
            ]
            blocks.append("\n".join(_grid(lines)))
    return "\n\n".join(["LTR on local tasks, percent, mean over clients and seeds", *blocks]) + "\n" if blocks else ""


def imbalance_table(runs: Sequence[MedicalRun]) -> str:
    """Imbalance factor of each client's training table, largest class over smallest; of the first run that tells."""
    counts = next((found for run in runs if (found := training_counts(run))), {})
    if not counts:
        return ""
    lines = [["client", "training samples", "imbalance factor", "absent classes"]]
    for client, classes in [*sorted(counts.items()), ("all", np.sum(list(counts.values()), 0))]:
        factor = imbalance_factor(classes.tolist())
        lines.append([str(client), str(int(classes.sum())), f"{factor:.2f}", str(int((classes == 0).sum()))])
    return "\n".join(_grid(lines)) + "\n"


def latex_table(sections: Mapping[str, Sequence[MedicalRun]]) -> str:
    """The short table for a paper, below a comment that says what a caption should."""
    counts = sorted({len(same) for runs in sections.values() for same in by_title(runs).values()})
    seeds = "-".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    lines = [f"% {_NOTE}; seeds: {seeds}", r"\begin{tabular}{l" + "r" * len(MAIN) + "}", r"\hline"]
    lines.append(" & ".join(["recipe", *(score.title for score in MAIN)]) + r" \\")
    for dataset, runs in sections.items():
        lines += [r"\hline", rf"\multicolumn{{{len(MAIN) + 1}}}{{l}}{{{_escaped(dataset)}}} \\"]
        for title, same in by_title(runs).items():
            cells = ["--" if c == "-" else c.replace("±", r"$\pm$") for c in (_cell(score, same) for score in MAIN)]
            lines.append(" & ".join([_escaped(title), *cells]) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}"]) + "\n"


def score_rows(dataset: str, runs: Sequence[MedicalRun]) -> list[dict[str, Any]]:
    """One row per recipe and score: fractions (counts of classes as they are), null where there is nothing."""
    found = []
    scores = all_scores(runs)
    for title, same in by_title(runs).items():
        for score in scores:
            values = [float(score.read(run)) for run in same]
            row = dict(zip(("mean", "low", "high"), confidence_interval(values), strict=True))
            found.append(
                {
                    "dataset": dataset,
                    "recipe": title,
                    "seeds": [run.seed for run in same],
                    "score": score.title,
                    **{name: plain(value) for name, value in row.items()},
                    "values": [plain(value) for value in values],
                }
            )
    return found


def scores_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The same as CSV; `seeds` is how many have a value."""
    names = ("dataset", "recipe", "score", "mean", "low", "high")
    counted = ([*(_blank(row[n]) for n in names), sum(v is not None for v in row["values"])] for row in rows)
    return _csv([*names, "seeds"], counted)


def tasks_csv(sections: Mapping[str, Sequence[MedicalRun]]) -> str:
    """Local scores of every run but those of single classes and groups: a line per client, two tasks and score."""
    names = ["dataset", "recipe", "seed", "run", "client", "trained_task", "evaluated_task", "score", "value"]
    lines = (
        [dataset, title, run.seed, run.name, client, i + 1, j + 1, what, float(matrix[i, j])]
        for dataset, runs in sections.items()
        for title, same in by_title(runs).items()
        for run in same
        for what, clients in run.local.items()
        if not what[-1].isdecimal()
        for client, matrix in clients.items()
        for i, j in np.argwhere(~np.isnan(matrix)).tolist()
    )
    return _csv(names, lines)


def plain(value: Any) -> Any:
    """A value for JSON: NaN becomes null, arrays become lists."""
    if isinstance(value, np.ndarray):
        return [plain(v) for v in value.tolist()]
    if isinstance(value, list):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _seeds(runs: Sequence[MedicalRun]) -> str:
    """How many runs count, of how many there are."""
    finished = sum(run.finished for run in runs)
    return str(len(runs)) if finished == len(runs) else f"{finished} of {len(runs)}"


def _cell(score: Score, runs: Sequence[MedicalRun]) -> str:
    mean, low, _ = confidence_interval([score.read(run) for run in runs])
    if math.isnan(mean):
        return "-"
    scale = 100 if score.percent else 1
    mean = round(mean, 6) + 0.0  # no minus before a zero
    return f"{scale * mean:.1f}" if math.isnan(low) else f"{scale * mean:.1f} ± {scale * abs(mean - low):.1f}"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}"


def _blank(value: Any) -> Any:
    return "" if value is None else value


def _escaped(text: str) -> str:
    return text.replace("_", r"\_").replace("#", r"\#")


def _grid(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    padded = ["  ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]
    return [padded[0], "  ".join("-" * w for w in widths), *padded[1:]]


def _csv(names: Sequence[str], lines: Any) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(lines)
    return out.getvalue()
