"""Reports on sweeps: DomainBed's own layout of the tables, and the files of a report in either style."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from fedhpc.errors import ConfigError
from fedhpc.report.figures import Figure
from fedhpc.report.files import PAGE, write_files
from fedhpc.report.names import ENVIRONMENTS, environment_labels, theirs
from fedhpc.report.results import Row, Table
from fedhpc.report.selected import selected_jobs
from fedhpc.report.sweep_json import json_report
from fedhpc.report.sweep_tables import (
    csv_report,
    explanations,
    in_latex,
    latex_report,
    text_report,
)
from fedhpc.report.sweeps import SweepResults, load, results

Style = Literal["fedhpc", "domainbed"]
_WIDTH, _AVERAGES_WIDTH = 20, 25


@dataclass(frozen=True)
class SweepReport:
    """What a report on a sweep wrote.

    Attributes:
        directory: where the files lie.
        files: all of them.
        text: the tables as text.
        json: the content of sweep.json.
        results: what they were made from.
    """

    directory: Path
    files: tuple[Path, ...]
    text: str
    json: str
    results: SweepResults


def report_sweep(
    directory: Path,
    out: Path | None = None,
    style: Style = "fedhpc",
    names: Sequence[str] | None = None,
    compat: bool | None = None,
) -> SweepReport:
    """Report on one sweep, ours or DomainBed's.

    Writes `sweep.txt`, `.tex`, `.csv`, `.json`, a plot per dataset (and of the averages) as PNG and SVG, `choices.txt`
    (why each model was chosen) and `selected.sh` (commands that train the chosen ones again); with the original's
    style `results.txt` and `results.tex` in place of the first two. `report.html` shows all of it.

    Args:
        directory: the sweep's folder.
        out: where the files go; without it `report` in the directory.
        style: layout of text and LaTeX.
        names: criteria; without them those that the sweep was made for.
        compat: follow DomainBed's rules; without it, if `style` is DomainBed's.

    Raises:
        ConfigError: no such style or criterion, or the directory holds no sweep.
        FedhpcError: the sweep cannot be read, or the report not be written.
    """
    if style not in get_args(Style):
        raise ConfigError(f"no style '{style}'; there are: {', '.join(get_args(Style))}")
    theirs_style = style == "domainbed"
    found = results(load(directory), names, theirs_style if compat is None else compat)
    title = f"Sweep {directory.resolve().name}"
    return write_report(found, directory / "report" if out is None else out, style, title)


def write_report(
    found: SweepResults,
    target: Path,
    style: Style = "fedhpc",
    title: str = "Sweep",
    page: str = PAGE,
    links: Sequence[str] = (),
) -> SweepReport:
    """Write the files of a report on a sweep (see `report_sweep`), and a page of that title and name, with links.

    Raises:
        FedhpcError: they cannot be written.
    """
    theirs_style = style == "domainbed"
    text = original_text(found) if theirs_style else text_report(found)
    stem = "results" if theirs_style else "sweep"
    from fedhpc.report.sweep_plots import sweep_plots  # matplotlib: half a second

    contents: dict[str, str | bytes] = {
        f"{stem}.txt": text,
        f"{stem}.tex": original_latex(found) if theirs_style else latex_report(found),
        "sweep.csv": csv_report(found),
        "sweep.json": json_report(found),
        "choices.txt": "".join(f"{line}\n" for line in explanations(found)),
        "selected.sh": selected_jobs(found),
        **sweep_plots(found),
    }
    files = write_files(target, contents, title, page, links)
    return SweepReport(target, files, text, str(contents["sweep.json"]), found)


def original_text(found: SweepResults) -> str:
    """Everything as the original prints it."""
    parts = [f"Total records: {found.sweep.num_records}\n"]
    parts += [original_tables(found, name, latex=False) for name in found.criteria]
    return "".join(parts)


def original_latex(found: SweepResults) -> str:
    """Everything as a LaTeX article with the original's tables."""
    lines = [
        r"\documentclass{article}", r"\usepackage{booktabs}", r"\usepackage{adjustbox}", r"\begin{document}",
        rf"\section{{Results}} % Total records: {found.sweep.num_records}", "",
    ]  # fmt: skip
    parts = ["\n".join(lines)]
    for name, criterion in found.criteria.items():
        parts += [f"\n\\subsection{{Model selection: {criterion.title}}}\n", original_tables(found, name, latex=True)]
    return "".join([*parts, "\n\\end{document}\n"])


def original_tables(found: SweepResults, name: str, latex: bool) -> str:
    """The tables of one criterion in the original's layout: one per dataset, then the averages."""
    method = f"model selection method: {found.criteria[name].title}"
    show = partial(original_figure, latex=latex)
    parts = []
    for table, kept in _recorded(found, name):
        rows = [[theirs(r.algorithm), *(show(c.figure) for c in r.cells), _mean(r.mean)] for r in kept]
        title = theirs(table.dataset)
        head = ["Algorithm", *_labels(found, table), "Avg"]
        parts.append(_layout(head, rows, _WIDTH, latex, title if latex else f"Dataset: {title}, {method}"))
    means = found.averages[name]
    recorded = {table.dataset: {r.algorithm for r in kept} for table, kept in _recorded(found, name)}
    head, rows = ["Algorithm", *map(theirs, recorded), "Avg"], []
    for algorithm, all_figures in means.rows:
        if any(algorithm in algorithms for algorithms in recorded.values()):
            figures = [f for dataset, f in zip(means.datasets, all_figures, strict=True) if dataset in recorded]
            rows.append([theirs(algorithm), *map(show, figures), _mean(means.mean(figures))])
    parts.append(_layout(head, rows, _AVERAGES_WIDTH, latex, "Averages" if latex else f"Averages, {method}"))
    return "".join(parts)


def _recorded(found: SweepResults, name: str) -> list[tuple[Table, list[Row]]]:
    """Tables with the rows that have records: the original knows no plan."""
    seen = {(t.dataset, t.algorithm) for t in found.sweep.trials}
    tables = [
        (t, [r for r in t.rows if (t.dataset, r.algorithm) in seen or any(c.choices for c in r.cells)])
        for t in found.tables[name]
        if not t.held_out
    ]
    return [(table, rows) for table, rows in tables if rows]


def _labels(found: SweepResults, table: Table) -> tuple[str, ...]:
    """The original's short names of a table's environments; ours where it does not know the dataset."""
    count = len(found.sweep.labels(table.dataset))
    labels = environment_labels(table.dataset, count)
    if len(labels) != count or len(table.environments) != count or table.dataset not in ENVIRONMENTS:
        return table.environments
    return labels


def original_figure(figure: Figure, latex: bool) -> str:
    """A cell as the original prints it."""
    if figure.mean is None:
        return "X"
    return f"{figure.mean:.1f} {'$' + chr(92) + 'pm$' if latex else '+/-'} {figure.standard_error:.1f}"


def _mean(value: float | None) -> str:
    return "X" if value is None else f"{value:.1f}"


def _layout(head: Sequence[str], rows: Sequence[Sequence[str]], width: int, latex: bool, title: str) -> str:
    if not latex:
        lines = ["", f"-------- {title}", *(_plain_line(line, width) for line in [head, *rows])]
        return "\n".join(lines) + "\n"
    bold = [rf"\textbf{{{in_latex(cell)}}}" for cell in head]
    body = [[in_latex(name), *figures] for name, *figures in rows]
    return "\n".join(
        [
            "", rf"\subsubsection{{{in_latex(title)}}}", "", r"\begin{center}", r"\adjustbox{max width=\textwidth}{%",
            rf"\begin{{tabular}}{{l{'c' * (len(head) - 1)}}}", r"\toprule", _latex_line(bold, width), r"\midrule",
            *(_latex_line(row, width) for row in body), r"\bottomrule", r"\end{tabular}}", r"\end{center}", "",
        ]
    )  # fmt: skip


def _plain_line(cells: Sequence[str], width: int) -> str:
    return "  ".join(f"{cell[:width]:<{width}}" for cell in cells) + " "


def _latex_line(cells: Sequence[str], width: int) -> str:
    """Cells side by side. The original cuts them as in text, which leaves a long name's brace open."""
    return " & ".join(f"{cell:<{width}}" for cell in cells) + r" \\"
