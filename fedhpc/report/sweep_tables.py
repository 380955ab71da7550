"""A sweep's results in our own layouts: text, LaTeX and CSV; a cell that lacks trials says so.

Accuracies are percent in text and LaTeX, fractions in CSV. JSON is in `sweep_json`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterator
from typing import Any

import fedhpc
from fedhpc.report.figures import Figure
from fedhpc.report.published import CONDITIONS, published_error, published_mean
from fedhpc.report.results import Cell, Row, Table
from fedhpc.report.selection import Choice
from fedhpc.report.sweep_notes import INCOMPLETE, missing_notes, remarks
from fedhpc.report.sweeps import SweepResults
from fedhpc.report.trial_files import SETTINGS

MISSING = "-"
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$",
    }
)  # fmt: skip


def text_report(found: SweepResults) -> str:
    """All tables as text, then what is missing and what else a reader should know."""
    parts = ["\n".join(_head(found))]
    for name, criterion in found.criteria.items():
        grids = [_grid(lines) for lines in _tables(found, name)]
        parts += [f"\n{title}, selected by {criterion.title}\n{grid}" for title, grid in grids]
    parts += [f"\n{title}\n{grid}" for title, grid in map(_grid, _comparisons(found))]
    notes = [*missing_notes(found), *remarks(found)]
    return "\n".join([*parts, *(["", *notes] if notes else [])]) + "\n"


def _head(found: SweepResults) -> Iterator[str]:
    sweep = found.sweep
    finished = sum(t.finished for t in sweep.trials)
    planned = f" of {len(sweep.planned)}" if sweep.planned else ""
    yield f"{sweep.source}: {finished}{planned} trials finished, {sweep.num_records} records"
    about = {"fedhpc": fedhpc.__version__, **(sweep.about or {}), "rules": "domainbed" if found.compat else "fedhpc"}
    settings = about.pop(SETTINGS, None)
    yield ", ".join(f"{key} {value}" for key, value in about.items())
    if settings is not None:
        yield f"settings: {settings}"
    yield from _errors(found)


def _errors(found: SweepResults) -> Iterator[str]:
    """What the figures are, what stands behind ±, and over how many trials."""
    counts = _counts(found)
    what = "accuracy on the test environment in %"
    if not counts:
        yield f"{what}: no trial that a cell needs is finished"
    elif found.compat:
        yield f"{what}, mean ± standard error over trials (0.0 of a single one)"
    elif max(counts) < 2:
        yield f"{what}, of one trial: there is no standard error"
    else:
        over = f"{counts[0]} trials" if len(counts) == 1 else "trials, whose number each table says"
        yield f"{what}, mean ± standard error (standard deviation / √n) over {over}"
        yield "column 'mean': over environments; its error is over trials of a trial's mean over environments"
        if len(counts) > 1:
            yield "without ±: of one trial, or a mean over environments that do not have the same trials"


def _counts(found: SweepResults, only: Table | None = None) -> list[int]:
    """The numbers of trials that there are behind a cell, ascending; of one table, or of all."""
    tables = [table for of_criterion in found.tables.values() for table in of_criterion] if only is None else [only]
    return sorted({c.figure.num_trials for table in tables for row in table.rows for c in row.cells} - {0})


def _over(found: SweepResults, table: Table) -> str:
    """Words about the number of trials behind a table's cells, where not all tables have the same."""
    counts = _counts(found, table)
    if len(_counts(found)) < 2 or not counts:
        return ""
    return (
        f" ({counts[0]} {'trial' if counts[0] == 1 else 'trials'} a cell)"
        if len(counts) == 1
        else (f" ({counts[0]} to {counts[-1]} trials a cell)")
    )


def _tables(found: SweepResults, name: str) -> Iterator[tuple[str, list[list[str]]]]:
    """Title and cells of every table of a criterion; the first line is the head."""
    for table in found.tables[name]:
        lines = [["algorithm", *table.environments, "mean"]]
        for row in table.rows:
            cells = (show(c.figure, bool(c.missing), found.compat) for c in row.cells)
            lines.append([row.algorithm, *cells, show(row.figure, bool(row.missing), found.compat)])
        yield table.title + _over(found, table), lines
    means = found.averages[name]
    if len(means.datasets) > 1:
        lines = [["algorithm", *means.datasets, "mean"]]
        own = [table for table in found.tables[name] if not table.held_out]
        missing = {(t.dataset, r.algorithm) for t in own for r in t.rows if r.missing}
        for algorithm, figures in means.rows:
            marks = [(d, algorithm) in missing for d in means.datasets]
            cells = (show(f, mark, found.compat) for f, mark in zip(figures, marks, strict=True))
            lines.append([algorithm, *cells, _mean(means.mean(figures), any(marks))])
        yield "all datasets", lines


def _comparisons(found: SweepResults) -> Iterator[tuple[str, list[list[str]]]]:
    """Published means of what the sweep has, and how far it is from them; nothing where there are none."""
    for name, criterion in found.criteria.items():
        means: dict[str, dict[str, str]] = {}
        for table in found.tables[name]:
            for row in table.rows:
                published = published_mean(name, table.dataset, row.algorithm, len(table.environments))
                if published is not None:
                    away = "" if row.mean is None else f" ({row.mean - published:+.1f})"
                    error = published_error(name, table.dataset, row.algorithm)
                    shown = f"{published:.1f}" if error is None else f"{published:.1f} ± {error:.1f}"
                    means.setdefault(row.algorithm, {})[table.dataset] = shown + away
        datasets = [t.dataset for t in found.tables[name] if any(t.dataset in cells for cells in means.values())]
        if datasets:
            rows = [[algorithm, *(cells.get(d, MISSING) for d in datasets)] for algorithm, cells in means.items()]
            title = (
                f"published means, selected by {criterion.title} ({CONDITIONS}); in brackets how far this is from them"
            )
            yield title, [["algorithm", *datasets], *rows]


def show(figure: Figure, incomplete: bool = False, compat: bool = False) -> str:
    """A figure as text; a star marks one that planned trials are missing behind.

    Of a single trial there is no standard error, but with `compat`, where it is the original's 0.
    """
    error = figure.error(compat)
    return (
        _mean(figure.mean, False)
        + (f" ± {error:.1f}" if error is not None else "")
        + (INCOMPLETE if incomplete else "")
    )


def _mean(value: float | None, incomplete: bool) -> str:
    return (MISSING if value is None else f"{value:.1f}") + (INCOMPLETE if incomplete else "")


def _grid(table: tuple[str, list[list[str]]]) -> tuple[str, str]:
    title, lines = table
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    shown = [
        "  ".join([f"{line[0]:<{widths[0]}}", *(f"{c:>{w}}" for c, w in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    ]
    return title, "\n".join(line.rstrip() for line in shown)


def in_latex(text: str) -> str:
    """A text as LaTeX prints it."""
    return text.translate(_LATEX)


def latex_report(found: SweepResults) -> str:
    """All tables as LaTeX tabulars (needs the package booktabs), each below a comment that says what it is."""
    parts = ["".join(f"% {line}\n" for line in _head(found))]
    for name, criterion in found.criteria.items():
        for title, lines in _tables(found, name):
            head, *body = ([in_latex(cell) for cell in line] for line in lines)
            rows = [" & ".join(row) + r" \\" for row in body]
            parts.append(
                "\n".join(
                    [
                        f"% {title}, selected by {criterion.title}", rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
                        r"\toprule", " & ".join(head) + r" \\", r"\midrule", *rows, r"\bottomrule",
                        r"\end{tabular}", "",
                    ]
                )
            )  # fmt: skip
    return "\n".join(parts)


def csv_report(found: SweepResults) -> str:
    """One line per cell and trial with what was chosen there; an empty choice where nothing could be chosen."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    choice_keys = ["trial_seed", "test_accuracy", "validation_accuracy", "hparams_seed", "step", "run", "hparams"]
    place_keys = ["criterion", "dataset", "algorithm", "test_env", "environment"]
    writer.writerow([*place_keys, *choice_keys, "missing_trials", "held_out"])
    for name in found.criteria:
        for table, row, cell, label in cells(found, name):
            place = [name, table.dataset, row.algorithm, cell.test_env, label]
            held_out = "+".join(map(str, table.held_out or (cell.test_env,)))
            for seed, choice in cell.choices.items() or [("", None)]:
                writer.writerow([*place, seed, *_csv_choice(choice), len(cell.missing), held_out])
    return out.getvalue()


def _csv_choice(choice: Choice | None) -> list[Any]:
    if choice is None:
        return [""] * 6
    hparams = json.dumps(dict(choice.hparams), sort_keys=True)
    return [choice.test, choice.validation, choice.hparams_seed, choice.step, choice.run, hparams]


def cells(found: SweepResults, name: str) -> Iterator[tuple[Table, Row, Cell, str]]:
    """Every cell of a criterion's tables, with its table, row and environment."""
    for table in found.tables[name]:
        for row in table.rows:
            for cell, label in zip(row.cells, table.environments, strict=True):
                yield table, row, cell, label


def explanations(found: SweepResults) -> Iterator[str]:
    """For every cell and trial in words: what was chosen, at which step, because of which accuracies."""
    repeat = found.sweep.draws_repeat
    searched: dict[tuple[str, str], set[str]] = {}
    for name, criterion in found.criteria.items():
        for table, row, cell, label in cells(found, name):
            yield f"{row.algorithm} on {table.title}, test environment {label}, {criterion.title}:"
            of = table.dataset, row.algorithm
            if of not in searched:
                searched[of] = _searched(found, *of)
            yield from (f"  trial {seed}: {_explain(choice, searched[of])}" for seed, choice in cell.choices.items())
            if cell.defaults.num_trials and _draws(cell):
                compat = found.compat
                draws = "which are the same in every trial" if repeat else "whose error is that of draws and training"
                yield (
                    f"  {show(cell.figure, compat=compat)} among all draws, {draws}; "
                    f"{show(cell.defaults, compat=compat)} with the defaults in every trial, whose error is "
                    "that of training alone"
                )
            if cell.missing:
                yield f"  {len(cell.missing)} trials are missing: {', '.join(t.id for t in cell.missing)}"
            elif not cell.choices:
                yield "  nothing to choose from: no trial has what this criterion chooses by"


def _draws(cell: Cell) -> bool:
    """Whether other draws than the defaults were chosen, in more than one trial."""
    return len(cell.choices) > 1 and any(choice.hparams_seed for choice in cell.choices.values())


def _searched(found: SweepResults, dataset: str, algorithm: str) -> set[str]:
    """The hyperparameters that trials of an algorithm on a dataset (of all, if it has none of its own) do not share."""
    here = [t for t in found.sweep.trials if t.dataset == dataset]
    values: dict[str, set[str]] = {}
    for trial in [t for t in here if t.algorithm == algorithm] or here:
        for name, value in trial.hparams.items():
            values.setdefault(name, set()).add(str(value))
    return {name for name, different in values.items() if len(different) > 1}


def _explain(choice: Choice, searched: Collection[str]) -> str:
    because = "; ".join(
        f"{_percent(e.accuracy)} on environment {e.environment} ({'smaller' if e.split == 'validation' else 'larger'}"
        f" part) by {e.run}"
        for e in choice.evidence
    )
    values = {name: value for name, value in choice.hparams.items() if name in searched}
    told = ", ".join(f"{n} {v:.4g}" if isinstance(v, float) else f"{n} {v}" for n, v in values.items())
    return (
        f"{_percent(choice.test)} from {choice.run} at step {choice.step}, hparams seed {choice.hparams_seed}"
        f"{f' ({told})' if told else ''}; chosen by {_percent(choice.validation)}, the mean of {because}"
    )


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
