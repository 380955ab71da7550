"""Tables as people keep them: CSV in several dialects and encodings, lists of paths, and single-sheet workbooks.

A table is read once, whole, and never guessed at silently: what was detected is noted, rows that do not fit the header
are listed with their line numbers, and a file that is no table is refused by name.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field

from fedhpc.data.schema import BadFile, shown
from fedhpc.errors import DatasetError, nearest

DELIMITERS = ",;\t|"
MISSING_TEXTS = frozenset(("", "nan", "na", "n/a", "none", "null", "unknown", "-", "?"))
"""Cells, in any case and stripped, that stand for a value that is not known."""

_FIELD_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: where it begins, and its stripped cells in the order of the columns."""

    line: int
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A header and rows of equal length.

    Attributes:
        name: of the file, for messages.
        columns: header names, stripped.
        rows: rows that fit the header.
        bad: the others, as `name:line`.
        notes: what was detected, one line each.
    """

    name: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    bad: tuple[BadFile, ...] = ()
    notes: tuple[str, ...] = ()
    _places: dict[str, int] = field(default_factory=dict, repr=False)

    def has(self, column: str) -> bool:
        """Whether there is a column of this name, in any letter case."""
        return column.strip().casefold() in self._places

    def column(self, *names: str) -> int:
        """Position of the first of these columns that is there; letter case and blanks around do not count.

        Raises:
            DatasetError: none is; names the file, the column and what is there.
        """
        for name in names:
            if self.has(name):
                return self._places[name.strip().casefold()]
        there = ", ".join(map(shown, self.columns[:40]))
        hint = nearest(names[0], list(self.columns))
        raise DatasetError(f"{self.name}: no column '{names[0]}'{hint}; its header has: {there}")

    def optional(self, *names: str) -> int | None:
        """Position of the first of these columns that is there, or None."""
        return next((self._places[n.strip().casefold()] for n in names if self.has(n)), None)


def is_missing(text: str) -> bool:
    """Whether a cell stands for a value that is not known."""
    return text.strip().casefold() in MISSING_TEXTS


def read_table(content: bytes, name: str) -> Table:
    """Read a CSV file.

    UTF-8 with or without a byte order mark and UTF-16 with one are read; the delimiter is the one of comma, semicolon,
    tabulator and bar that divides the header most.

    Args:
        content: the file.
        name: what to call it in messages.

    Raises:
        DatasetError: empty, no rows, not text, or broken quoting; with the line number where there is one.
    """
    records, notes = csv_records(content, name)
    return make_table(name, records, notes)


def csv_records(content: bytes, name: str) -> tuple[list[tuple[int, list[str]]], list[str]]:
    """All records of a CSV file with the line on which each begins, and what was detected; see `read_table`."""
    text, notes = _decoded(content, name)
    header_line = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max(DELIMITERS, key=lambda d: (len(next(csv.reader([header_line], delimiter=d))), -DELIMITERS.index(d)))
    if delimiter != ",":
        notes.append(f"{name}: columns are divided by {delimiter!r}")
    return _records(text, delimiter, name), notes


def make_table(name: str, records: Sequence[tuple[int, Sequence[str]]], notes: Sequence[str] = ()) -> Table:
    """A table of records (line number, cells) whose first is the header.

    Raises:
        DatasetError: no header, no rows, or two columns of one name.
    """
    if not records:
        raise DatasetError(f"{name}: no header in it")
    columns = [cell.strip() for cell in records[0][1]]
    while columns and not columns[-1]:
        columns.pop()  # a delimiter at the end of every line
    rows, bad = [], []
    for line, cells in records[1:]:
        stripped = [cell.strip() for cell in cells]
        if not any(stripped):
            continue
        surplus = stripped[len(columns) :]
        if len(stripped) < len(columns) or any(surplus):
            bad.append(BadFile(f"{name}:{line}", f"{len(stripped)} fields, the header has {len(columns)}"))
        else:
            rows.append(Row(line, tuple(stripped[: len(columns)])))
    if not rows and not bad:
        raise DatasetError(f"{name}: a header, but no samples in it")
    return Table(name, tuple(columns), rows, tuple(bad), tuple(notes), _places(columns, name))


def _places(columns: Sequence[str], name: str) -> dict[str, int]:
    """Casefolded name -> position."""
    places: dict[str, int] = {}
    for place, column in enumerate(columns):
        if column and column.casefold() in places:
            raise DatasetError(f"{name}: two columns are called '{shown(column)}'; rename one")
        places.setdefault(column.casefold(), place)
    return places


def read_list(content: bytes, name: str) -> Table:
    """Read a list of `path label` lines: columns `Path` and `Label`.

    The last blank divides, so paths may hold blanks; empty lines and lines that begin with # are passed over. A label
    that is no whole number makes the line bad.
    """
    text, notes = _decoded(content, name)
    rows, bad = [], []
    for line, entry in enumerate(text.splitlines(), 1):
        entry = entry.strip()
        if not entry or entry.startswith("#"):
            continue
        path, _, label = entry.rpartition(" ")
        if label.isdecimal() and path:
            rows.append(Row(line, (path.rstrip(), label)))
        else:
            bad.append(BadFile(f"{name}:{line}", f"no whole number after the last blank, but '{shown(entry[-40:])}'"))
    if not rows and not bad:
        raise DatasetError(f"{name}: no samples in it")
    return Table(name, ("Path", "Label"), rows, tuple(bad), tuple(notes), {"path": 0, "label": 1})


def _decoded(content: bytes, name: str) -> tuple[str, list[str]]:
    if not content.strip():
        raise DatasetError(f"{name}: empty file, no header in it")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return content.decode("utf-16"), [f"{name}: read as UTF-16"]
        except UnicodeDecodeError as error:
            raise DatasetError(f"{name}: damaged UTF-16 ({error.reason}); save it as UTF-8") from None
    if b"\0" in content:
        line = content[: content.index(b"\0")].count(b"\n") + 1
        raise DatasetError(f"{name}: NUL bytes from line {line} on, so the copy is damaged; copy it again")
    try:
        return content.decode("utf-8-sig"), []
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        byte = content[error.start]
        raise DatasetError(f"{name}: line {line} is not UTF-8 (byte 0x{byte:02X}); save the table as UTF-8") from None


def _records(text: str, delimiter: str, name: str) -> list[tuple[int, list[str]]]:
    """All records with the line on which each begins; line breaks inside quotes belong to the field."""
    before = csv.field_size_limit(_FIELD_BYTES)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    found, line = [], 1
    try:
        for cells in reader:
            if cells:
                found.append((line, cells))
            line = reader.line_num + 1
    except csv.Error as error:
        raise DatasetError(f"{name}: line {line} can't be read ({error}); check its quotes") from None
    finally:
        csv.field_size_limit(before)
    return found
