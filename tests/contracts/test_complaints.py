"""docs/complaints.md: rows are numbered without a gap, and every test that it names is there."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

PAGE = REPOSITORY / "docs" / "complaints.md"
ROW = re.compile(r"^\| (\d+) \| (.+) \| (.+) \| (.+) \|$", re.M)
NODE = re.compile(r"`([^`]+)`")


def rows() -> list[tuple[int, str, str, str]]:
    """Number, complaint, answer and tests of each row."""
    return [(int(number), *rest) for number, *rest in ROW.findall(PAGE.read_text(encoding="utf-8"))]


@functools.cache
def names_in(file: Path) -> frozenset[str]:
    """Names of the test functions of a file that run without being asked for by mark."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return frozenset(f.name for f in functions if not any("slow" in ast.unparse(d) for d in f.decorator_list))


def is_there(node: str) -> bool:
    """Whether `FILE::TEST` is a test of this repository."""
    file, _, name = node.partition("::")
    path = REPOSITORY / file
    return name.startswith("test_") and path.is_file() and name in names_in(path)


def test_rows_are_numbered_without_a_gap_and_none_is_without_an_answer() -> None:
    found = rows()
    assert [number for number, *_ in found] == list(range(1, 43))
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert len(found) == sum(re.match(r"\| \d", line) is not None for line in lines), "a row of another form"
    assert all(answer.strip() and complaint.strip() for _, complaint, answer, _ in found)


@pytest.mark.parametrize("row", rows(), ids=lambda row: str(row[0]))
def test_every_row_names_tests_that_exist_or_says_why_not(row: tuple[int, str, str, str]) -> None:
    *_, cell = row
    nodes = NODE.findall(cell)
    assert [node for node in nodes if not is_there(node)] == []
    assert nodes or re.match(r"(does not apply|open): \S", cell)


def test_a_wrong_name_would_be_noticed() -> None:
    here = Path(__file__).relative_to(REPOSITORY).as_posix()
    assert is_there(f"{here}::test_a_wrong_name_would_be_noticed")
    assert not is_there(f"{here}::test_of_another_name")
    assert not is_there(f"{here}::rows")
    assert not is_there("tests/no_such_file.py::test_a_wrong_name_would_be_noticed")
    assert not is_there("tests/mpi/test_medical.py::test_batch_norm_gives_the_same_bits_too"), "it is marked slow"
