"""A report as one self-contained HTML page: text, figures and tables, without a network or a second file."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import fedhpc

MOST_ROWS = 500
"""Rows of a table that the page shows; its CSV file has them all."""
_TEMPLATE = "page.html.jinja"


@dataclass(frozen=True)
class Grid:
    """A table of the page.

    Attributes:
        name: of its CSV file.
        header: titles of the columns.
        rows: cells as text, `MOST_ROWS` at most.
        num_rows: rows of the file.
    """

    name: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    num_rows: int


def page(title: str, contents: Mapping[str, str | bytes], links: Sequence[str] = ()) -> str:
    """The page of a report.

    The SVG figures stand first, each with its name as caption; then text files as they are; then the CSV files as
    tables whose columns can be sorted. Other files are named only. The same contents give the same bytes.

    Args:
        title: of the page.
        contents: file name -> content of the report's files, in the order in which they are shown.
        links: pages beside this one to point at.
    """
    import jinja2  # only pages need it

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(Path(__file__).with_name(_TEMPLATE).read_text(encoding="utf-8"))
    return template.render(
        title=title,
        version=fedhpc.__version__,
        texts={name: _text(content) for name, content in contents.items() if name.endswith(".txt")},
        figures={name: _image(content) for name, content in contents.items() if name.endswith(".svg")},
        grids=[_grid(name, _text(content)) for name, content in contents.items() if name.endswith(".csv")],
        files=list(contents),
        links=links,
    )


def _text(content: str | bytes) -> str:
    return content.decode() if isinstance(content, bytes) else content


def _image(content: str | bytes) -> str:
    """An SVG as a data URI: as an image of its own, so that names inside two figures cannot collide."""
    raw = content.encode() if isinstance(content, str) else content
    return "data:image/svg+xml;base64," + base64.b64encode(raw).decode()


def _grid(name: str, text: str) -> Grid:
    rows = [tuple(row) for row in csv.reader(io.StringIO(text)) if row]
    header = rows[0] if rows else ()
    return Grid(name, header, tuple(rows[1 : MOST_ROWS + 1]), max(0, len(rows) - 1))
