"""The page of a report: whole by itself, escaped, repeatable, and bounded."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedhpc.errors import FedhpcError
from fedhpc.report.files import write_files
from fedhpc.report.html import MOST_ROWS, page

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><title>a</title></svg>'
CONTENTS = {
    "summary.txt": "accuracy 93.1 & <b>\n",
    "curve.svg": SVG,
    "curve.png": b"\x89PNG",
    "summary.csv": 'run,accuracy\n"a <i>, b",93.1\nb,\n',
}


class Page(HTMLParser):
    """Cells, and everything that points out of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.links: list[str] = []
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        self._in_cell = tag == "td"
        if self._in_cell:
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.cells[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = False


def test_it_needs_no_other_file_and_no_network() -> None:
    text = page("runs", CONTENTS)
    assert all(link.startswith(("#", "data:image/svg+xml;base64,")) for link in Page(text).links)
    assert "url(" not in text
    assert "@import" not in text


def test_pages_point_at_each_other() -> None:
    assert "selection.html" in Page(page("runs", CONTENTS, ["selection.html"])).links
    assert "selection.html" not in page("runs", CONTENTS)


def test_figures_are_in_it_whole() -> None:
    (image,) = re.findall(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", page("runs", CONTENTS))
    assert base64.b64decode(image).decode() == SVG
    ElementTree.fromstring(base64.b64decode(image))


def test_tables_are_shown_as_they_are_and_escaped() -> None:
    text = page("a <script>", CONTENTS)
    assert Page(text).cells == ["a <i>, b", "93.1", "b", ""]
    assert "accuracy 93.1 &amp; &lt;b&gt;" in text
    assert "a &lt;script&gt;" in text
    assert "<i>" not in text


def test_long_tables_are_cut_and_it_is_said() -> None:
    rows = "".join(f"{n}\n" for n in range(MOST_ROWS + 7))
    text = page("runs", {"long.csv": "number\n" + rows})
    assert len(Page(text).cells) == MOST_ROWS
    assert f"{MOST_ROWS + 7} rows" in text
    assert "the file has them all" in text


def test_the_same_contents_give_the_same_bytes() -> None:
    assert page("runs", CONTENTS) == page("runs", dict(CONTENTS))


def test_files_and_page_are_written_and_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "report"
    target.mkdir()
    (target / "mine.txt").write_text("kept")
    (target / "summary.txt").write_text("old")
    written = write_files(target, CONTENTS, "runs")
    assert [path.name for path in written] == [*CONTENTS, "report.html"]
    assert (target / "summary.txt").read_text() == CONTENTS["summary.txt"]
    assert (target / "mine.txt").read_text() == "kept"
    assert sorted(p.name for p in target.iterdir()) == sorted([*CONTENTS, "report.html", "mine.txt"])


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FedhpcError, match=r"file/report: cannot be written"):
        write_files(tmp_path / "file" / "report", CONTENTS, "runs")
