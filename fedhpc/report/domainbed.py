"""Results of a sweep under each criterion, and their tables in DomainBed's own layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedhpc.errors import ConfigError
from fedhpc.report.names import theirs
from fedhpc.report.original import is_original_sweep, read_original
from fedhpc.report.results import Averages, Figure, SweepRecords, Table, averages, tables
from fedhpc.report.selection import Criterion, criteria
from fedhpc.report.trial_files import is_sweep, read_sweep

Style = Literal["fedhpc", "domainbed"]
_WIDTH, _AVERAGES_WIDTH = 20, 25


@dataclass(frozen=True)
class SweepResults:
    """A sweep's tables under each criterion.

    Attributes:
        sweep: what they were made from.
        criteria: the criteria, by name, in order.
        tables: by criterion.
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
    found = {name: tuple(tables(sweep, criterion, name)) for name, criterion in chosen.items()}
    means = {name: averages(found[name], name, whole=not compat) for name in found}
    return SweepResults(sweep, chosen, found, means, compat)


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
    parts = []
    for table in found.tables[name]:
        rows = [[_label(r.algorithm), *(_figure(c.figure, latex) for c in r.cells), _mean(r.mean)] for r in table.rows]
        head = ["Algorithm", *table.environments, "Avg"]
        title = theirs(table.dataset)
        parts.append(_layout(head, rows, _WIDTH, latex, title if latex else f"Dataset: {title}, {method}"))
    means = found.averages[name]
    rows = [[_label(a), *(_figure(f, latex) for f in figures), _mean(means.mean(figures))] for a, figures in means.rows]
    head = ["Algorithm", *(theirs(d) for d in means.datasets), "Avg"]
    parts.append(_layout(head, rows, _AVERAGES_WIDTH, latex, "Averages" if latex else f"Averages, {method}"))
    return "".join(parts)


def _label(algorithm: str) -> str:
    return theirs(algorithm)


def _figure(figure: Figure, latex: bool) -> str:
    if figure.mean is None:
        return "X"
    return f"{figure.mean:.1f} {'$' + chr(92) + 'pm$' if latex else '+/-'} {figure.standard_error:.1f}"


def _mean(value: float | None) -> str:
    return "X" if value is None else f"{value:.1f}"


def _layout(head: Sequence[str], rows: Sequence[Sequence[str]], width: int, latex: bool, title: str) -> str:
    if not latex:
        lines = ["", f"-------- {title}", *(_plain_line(line, width) for line in [head, *rows])]
        return "\n".join(lines) + "\n"
    bold = [rf"\textbf{{{cell}}}".replace("%", r"\%") for cell in head]
    return "\n".join(
        [
            "", rf"\subsubsection{{{title}}}", "", r"\begin{center}", r"\adjustbox{max width=\textwidth}{%",
            rf"\begin{{tabular}}{{l{'c' * (len(head) - 1)}}}", r"\toprule", _latex_line(bold, width), r"\midrule",
            *(_latex_line(row, width) for row in rows), r"\bottomrule", r"\end{tabular}}", r"\end{center}", "",
        ]
    )  # fmt: skip


def _plain_line(cells: Sequence[str], width: int) -> str:
    return "  ".join(f"{cell[:width]:<{width}}" for cell in cells) + " "


def _latex_line(cells: Sequence[str], width: int) -> str:
    return " & ".join(f"{cell[:width]:<{width}}" for cell in cells) + r" \\"
