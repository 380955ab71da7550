"""The medical part of a report: a table per recipe in four forms, and the figures, with intervals over seeds."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedhpc.errors import FedhpcError
from fedhpc.report.ltr import confidence_interval
from fedhpc.report.medical import COLUMNS, MedicalRun, by_title, is_medical, medical_table, read_medical

SCENARIO, CONTRAST = "scenario.json", "contrast.json"


def medical_files(runs: Sequence[Path], places: Sequence[Path]) -> tuple[str, dict[str, bytes]]:
    """Text and files (name -> content) about the medical runs among some run directories; empty without any.

    Args:
        runs: run directories of any kind.
        places: directories that were asked about; contrasts that `fedhpc scenario --contrast` left there are drawn.

    Raises:
        FedhpcError: records can't be read; names the file.
    """
    medical = [read_medical(run, run.name) for run in runs if is_medical(run) and (run / "metrics.jsonl").exists()]
    if not medical:
        return "", {}
    from fedhpc.report.medical_plots import contrast_plot, medical_plots, scenario_plots  # matplotlib: half a second

    sections = _by_dataset(medical)
    text = "\n".join(f"{dataset}\n{medical_table(same)}" for dataset, same in sections.items())
    rows = [row for dataset, same in sections.items() for row in _rows(dataset, same)]
    files = {
        "medical.txt": text.encode(),
        "medical.json": (json.dumps(rows, indent=1) + "\n").encode(),
        "medical.csv": _csv(rows).encode(),
        "medical.tex": _latex(sections).encode(),
    }
    for dataset, same in sections.items():
        suffix = "" if len(sections) == 1 else f"_{dataset}"
        for name, content in medical_plots(same).items():
            stem, _, form = name.rpartition(".")
            files[f"{stem}{suffix}.{form}"] = content
    tree = _first_tree([run / SCENARIO for run in runs if is_medical(run)])
    files |= scenario_plots(tree) if tree else {}
    contrasts = _first_tree([p for place in places for p in (place / CONTRAST, *sorted(place.glob(f"*/{CONTRAST}")))])
    files |= contrast_plot(contrasts) if contrasts else {}
    return text, files


def _by_dataset(runs: Sequence[MedicalRun]) -> dict[str, list[MedicalRun]]:
    """Scores on different data, or with and without a new class, are never averaged."""
    found: dict[str, list[MedicalRun]] = {}
    for run in runs:
        found.setdefault(run.dataset if run.novel is None else f"{run.dataset}_novel", []).append(run)
    return found


def _rows(dataset: str, runs: Sequence[MedicalRun]) -> list[dict[str, Any]]:
    """One row per recipe and column: fractions, null where there is nothing."""
    found = []
    for title, same in by_title(runs).items():
        for column, read in COLUMNS:
            values = [float(read(run)) for run in same]
            mean, low, high = confidence_interval(values)
            row = {"mean": mean, "low": low, "high": high}
            found.append(
                {
                    "dataset": dataset,
                    "recipe": title,
                    "seeds": [run.seed for run in same],
                    "score": column,
                    **{name: None if math.isnan(value) else value for name, value in row.items()},
                    "values": [None if math.isnan(value) else value for value in values],
                }
            )
    return found


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = ("dataset", "recipe", "score", "mean", "low", "high")
    writer.writerow([*names, "seeds"])
    writer.writerows([*("" if row[n] is None else row[n] for n in names), len(row["seeds"])] for row in rows)
    return out.getvalue()


def _latex(sections: Mapping[str, Sequence[MedicalRun]]) -> str:
    lines = [r"\begin{tabular}{l" + "r" * len(COLUMNS) + "}", r"\hline"]
    lines.append(" & ".join(["recipe", *(title for title, _ in COLUMNS)]) + r" \\")
    for dataset, runs in sections.items():
        name = dataset.replace("_", r"\_")
        lines += [r"\hline", rf"\multicolumn{{{len(COLUMNS) + 1}}}{{l}}{{{name}}} \\"]
        for title, same in by_title(runs).items():
            cells = []
            for _, read in COLUMNS:
                mean, low, _ = confidence_interval([read(run) for run in same])
                half = "" if math.isnan(low) else rf" $\pm$ {100 * abs(mean - low):.1f}"
                cells.append("--" if math.isnan(mean) else f"{100 * mean:.1f}{half}")
            lines.append(" & ".join([title.replace("_", r"\_"), *cells]) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}"]) + "\n"


def _first_tree(paths: Sequence[Path]) -> dict[str, Any] | None:
    """The content of the first file that is there."""
    for path in paths:
        if path.is_file():
            try:
                found = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise FedhpcError(f"{path}: cannot be read as JSON ({error})") from None
            return found if isinstance(found, dict) else None
    return None
