"""The medical part of a report: tables and figures of the runs of each dataset, with intervals over seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedhpc.report.medical import HOLDOUT, SCENARIO, MedicalRun, is_medical, read_medical, read_tree
from fedhpc.report.medical_groups import by_title, without_repeats
from fedhpc.report.medical_logs import fedmedicl_logs
from fedhpc.report.medical_scores import training_counts, training_imbalance
from fedhpc.report.medical_tables import (
    details_table,
    imbalance_table,
    latex_table,
    matrix_table,
    medical_table,
    plain,
    score_rows,
    scores_csv,
    tasks_csv,
)
from fedhpc.report.studies import OpenRun, absent_runs, unfinished

CONTRAST = "contrast.json"
_Sections = Mapping[str, Sequence[MedicalRun]]


def medical_files(runs: Sequence[Path], places: Sequence[Path], style: str = "fedhpc") -> tuple[str, dict[str, bytes]]:
    """Text and files (name -> content) about the medical runs among some run directories; empty without any.

    Args:
        runs: run directories of any kind.
        places: directories that were asked about; contrasts that `fedhpc scenario --contrast` left there are drawn.
        style: `fedmedicl` adds the original's log files of every run.

    Raises:
        FedhpcError: records can't be read; names the file.
    """
    kept = [run for run in runs if is_medical(run) and (run / "metrics.jsonl").exists()]
    found = [read_medical(run, name) for run, name in zip(kept, _names(kept), strict=True)]
    if not found:
        return "", {}
    medical, notes = without_repeats(found)
    sections = _by_dataset(medical)
    contrasts = _contrasts(medical, places)
    notes += [_absent(run) for run in absent_runs(places) if "scenario" in run.run.config]
    notes += _unfinished(medical) + ([] if contrasts else [_no_contrast(medical[0])])
    text = "\n".join(f"{dataset}\n{medical_table(same)}" for dataset, same in sections.items())
    text += "".join(f"note: {note}\n" for note in notes)
    whole = text + "".join(f"\n{dataset}\n\n{_details(same)}" for dataset, same in sections.items())
    rows = [row for dataset, same in sections.items() for row in score_rows(dataset, same)]
    tree = {"notes": notes, "scores": rows, "runs": _run_trees(sections)}
    files = {
        "medical.txt": whole.encode(),
        "medical.json": (json.dumps(tree, indent=1) + "\n").encode(),
        "medical.csv": scores_csv(rows).encode(),
        "medical_tasks.csv": tasks_csv(sections).encode(),
        "medical.tex": latex_table(sections).encode(),
        **_figures(sections, contrasts),
    }
    if style == "fedmedicl":
        for run in medical:
            files |= {f"{run.name}_{name}": content for name, content in fedmedicl_logs(run).items()}
    return text, files


def _names(places: Sequence[Path]) -> list[str]:
    """The last part of each path; where others have the same, with as many more as it takes."""
    parts = [place.absolute().parts[1:] for place in places]
    names = ["-".join(own[-1:]) for own in parts]
    for num in range(2, max(map(len, parts), default=0) + 1):
        names = ["-".join(own[-num:]) if names.count(n) > 1 else n for own, n in zip(parts, names, strict=True)]
    return [n if names.count(n) == 1 else f"{n}-{number}" for number, n in enumerate(names, 1)]


def _by_dataset(runs: Sequence[MedicalRun]) -> dict[str, list[MedicalRun]]:
    """Scores on different data, or with and without a new class, are never averaged."""
    found: dict[str, list[MedicalRun]] = {}
    for run in runs:
        found.setdefault(run.dataset if run.novel is None else f"{run.dataset}_novel", []).append(run)
    return found


def _details(runs: Sequence[MedicalRun]) -> str:
    return "\n".join(part for part in (details_table(runs), matrix_table(runs), imbalance_table(runs)) if part)


def _unfinished(runs: Sequence[MedicalRun]) -> list[str]:
    """What is missing, and how to get it, where that is possible."""
    notes = []
    for run in runs:
        if run.finished:
            continue
        tasks = ", ".join(map(str, run.missing))
        if run.done:
            notes.append(f"{run.name} came to its end, but nobody was tested after task {tasks}: no samples for it")
            continue
        what = f"{run.name} has no scores after task {tasks} and counts only where it has some"
        notes.append(f"{what}; it {unfinished(run.place)}")
    return notes


def _absent(run: OpenRun) -> str:
    return f"{run.run.name} (seed {run.run.seed}) was planned and not begun; it counts nowhere; run: {run.command}"


def _no_contrast(run: MedicalRun) -> str:
    return (
        f"no {CONTRAST}, so no figure of the contrast; it needs the images: "
        f"fedhpc scenario {run.place / 'config.yaml'} --contrast --out {run.place}"
    )


def _contrasts(runs: Sequence[MedicalRun], places: Sequence[Path]) -> dict[str, Any]:
    """Dataset -> group -> values of all files that are there: whole ones beside the runs before the runs' samples."""
    beside = [path for place in places for path in (place / CONTRAST, *sorted(place.glob(f"*/{CONTRAST}")))]
    found: dict[str, Any] = {}
    in_runs = {run.place / CONTRAST for run in runs}
    for path in [*(p for p in beside if p not in in_runs), *sorted(in_runs)]:
        for dataset, groups in (read_tree(path) or {}).items():
            names = [dataset, f"{dataset} ({', '.join(groups)})"]
            if dataset in found and set(found[dataset]) == set(groups):
                continue
            found.setdefault(names[0] if dataset not in found else names[1], groups)
    return found


def _figures(sections: _Sections, contrasts: Mapping[str, Any]) -> dict[str, bytes]:
    from fedhpc.report.medical_plots import contrast_plot, medical_plots, scenario_plots  # matplotlib: half a second

    files: dict[str, bytes] = {}
    for dataset, same in sections.items():
        suffix = "" if len(sections) == 1 else f"_{dataset}"
        drawn = medical_plots(same)
        tree = next((run.tree for run in same if run.tree), None)
        drawn |= scenario_plots(tree) if tree else {}
        for name, content in drawn.items():
            stem, _, form = name.rpartition(".")
            files[f"{stem}{suffix}.{form}"] = content
    return files | (contrast_plot(contrasts) if contrasts else {})


def _run_trees(sections: _Sections) -> list[dict[str, Any]]:
    """Everything about every run, as plain values for JSON; matrices are [trained task][evaluated task]."""
    return [
        {
            "name": run.name,
            "dataset": dataset,
            "recipe": title,
            "seed": run.seed,
            "finished": run.finished,
            "missing_tasks": run.missing,
            "novel_class": run.novel,
            "groups": list(run.tree.get("groups", ())),
            "classes": list(run.tree.get("classes", ())),
            "training_imbalance_factor": plain(training_imbalance(run)),
            "training_counts": {str(client): counts.tolist() for client, counts in training_counts(run).items()},
            "cumulative": {score: plain(run.cumulative(score)) for score in run.local},
            "matrix": {score: plain(run.matrix(score)) for score in run.local},
            "client_matrices": {str(c): plain(matrix) for c, matrix in run.local.get("ltr", {}).items()},
            "holdout": {
                what.removeprefix(HOLDOUT): {"common" if m is None else str(m): plain(s) for m, s in models.items()}
                for what, models in run.holdout.items()
            },
            "known_and_novel": plain(list(run.novel_curves() or ())),
        }
        for dataset, runs in sections.items()
        for title, same in by_title(runs).items()
        for run in same
    ]


__all__ = ["CONTRAST", "SCENARIO", "medical_files"]
