"""The first sheet of an .xlsx workbook as a table: cells and shared texts only, no formulas, styles or macros."""

from __future__ import annotations

import io
import re
import zipfile
from xml.etree import ElementTree

from fedhpc.data._tables import Table, make_table
from fedhpc.errors import DatasetError

_MAX_BYTES = 1 << 28
_DAMAGE = (zipfile.BadZipFile, ElementTree.ParseError, KeyError, ValueError, IndexError, RuntimeError, OSError)
_SPACE = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def read_workbook(content: bytes, name: str) -> Table:
    """Read the first sheet; its first row with a text in it is the header.

    Raises:
        DatasetError: not a workbook, or damaged.
    """
    return make_table(name, workbook_records(content, name))


def workbook_records(content: bytes, name: str) -> list[tuple[int, list[str]]]:
    """Rows of the first sheet that hold something, with their numbers, all of one length; see `read_workbook`."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            texts = _shared_texts(archive)
            sheets = sorted(n for n in archive.namelist() if re.fullmatch(r"xl/worksheets/sheet\d+\.xml", n))
            if not sheets:
                raise DatasetError(f"{name}: no sheet in it")
            records = _rows(_parsed(archive, sheets[0]), texts)
    except DatasetError:
        raise
    except (
        zipfile.BadZipFile,
        ElementTree.ParseError,
        KeyError,
        ValueError,
        IndexError,
        RuntimeError,
        OSError,
    ) as error:
        raise DatasetError(f"{name}: not a readable .xlsx workbook ({error}); save it as CSV") from None
    width = max((len(cells) for _, cells in records), default=0)
    return [(line, cells + [""] * (width - len(cells))) for line, cells in records if any(cells)]


def _parsed(archive: zipfile.ZipFile, member: str) -> ElementTree.Element:
    if archive.getinfo(member).file_size > _MAX_BYTES:
        raise ValueError(f"{member} is larger than {_MAX_BYTES:,} bytes")
    text = archive.read(member)
    if b"<!DOCTYPE" in text[:1024]:  # entities could blow up
        raise ValueError("it defines XML entities")
    return ElementTree.fromstring(text)


def _shared_texts(archive: zipfile.ZipFile) -> list[str]:
    if "xl/sharedStrings.xml" not in archive.namelist():
        return []
    root = _parsed(archive, "xl/sharedStrings.xml")
    return ["".join(t.text or "" for t in entry.iter(f"{_SPACE}t")) for entry in root.iter(f"{_SPACE}si")]


def _rows(sheet: ElementTree.Element, texts: list[str]) -> list[tuple[int, list[str]]]:
    found = []
    for number, row in enumerate(sheet.iter(f"{_SPACE}row"), 1):
        cells: list[str] = []
        for cell in row.iter(f"{_SPACE}c"):
            place = _column(cell.get("r", "")) if cell.get("r") else len(cells)
            cells += [""] * (place + 1 - len(cells))
            cells[place] = _text(cell, texts)
        found.append((int(row.get("r", number)), cells))
    return found


def _column(reference: str) -> int:
    letters = re.match(r"[A-Z]+", reference)
    if letters is None or len(letters[0]) > 3:
        raise ValueError(f"cell reference '{reference}'")
    place = 0
    for letter in letters[0]:
        place = place * 26 + ord(letter) - ord("A") + 1
    return place - 1


def _text(cell: ElementTree.Element, texts: list[str]) -> str:
    if cell.get("t") == "inlineStr":
        return "".join(t.text or "" for t in cell.iter(f"{_SPACE}t"))
    value = cell.find(f"{_SPACE}v")
    if value is None or value.text is None:
        return ""
    return texts[int(value.text)] if cell.get("t") == "s" else value.text
