"""Awkward and broken tables, as the rows of group `table` in a manifest.csv say (see test_manifest.py)."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhpc.config import to_yaml
from fedhpc.data._demographics import parse_age, parse_sex
from fedhpc.data._tables import read_list, read_table
from fedhpc.data.prepare import prepare
from fedhpc.data.schema import Manifest
from fedhpc.data.shards import ShardStore
from fedhpc.errors import DatasetError
from tests.conftest import REPOSITORY

Row = dict[str, str]


def hostile_folder(config: pytest.Config) -> Path:
    chosen = config.getoption("--hostile", default=None)
    return Path(chosen).resolve() if chosen else REPOSITORY.parent / "shared" / "data" / "hostile"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "row" in metafunc.fixturenames:
        rows = manifest_rows(hostile_folder(metafunc.config))
        metafunc.parametrize("row", rows, ids=[row["path"] for row in rows])


def manifest_rows(folder: Path) -> list[Row]:
    if not (folder / "manifest.csv").is_file():
        return []
    with (folder / "manifest.csv").open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["group"] == "table"]


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> Path:
    found = hostile_folder(request.config)
    if not manifest_rows(found):
        pytest.skip(f"no table rows in {found}/manifest.csv")
    return found


def make(folder: Path, table: str, place: Path, on_bad: Any = "stop", **keys: Any) -> Manifest:
    """Prepare a table of the folder; the image size is fixed, as the pictures differ."""
    place.mkdir(exist_ok=True)
    label = {"label": "Label"} if table.endswith(".txt") else {"label": "Sex"}
    spec = place / "medical_table.yaml"
    spec.write_text(to_yaml({"root": str(folder), "table": table, **label, **keys}))
    out = place / f"out-{len(list(place.iterdir()))}"
    return prepare("medical_table", spec, out, size=16, on_bad=on_bad)


def bad_of(folder: Path, table: str, place: Path, **keys: Any) -> dict[str, str]:
    """What is refused, by `name:line`; preparing stops for it, and tells all of it."""
    with pytest.raises(DatasetError, match="no dataset was written") as caught:
        make(folder, table, place, **keys)
    lines = str(caught.value).splitlines()[1:]
    return {line.strip().split(": ")[0]: line.strip().partition(": ")[2] for line in lines}


def test_every_table(row: Row, folder: Path, tmp_path: Path) -> None:
    """Whatever the table: it loads, or one message names it; never a traceback, never a partial result."""
    path = folder / row["path"]
    if not path.is_file():
        pytest.skip("not on this disk")
    keys: dict[str, Any] = {"label": "No Finding", "flag": True} if "missing_sex" in row["path"] else {}
    problem, manifest = None, None
    try:
        manifest = make(folder, row["path"], tmp_path, **keys)
    except DatasetError as error:
        problem = str(error)
    if manifest is not None:
        assert row["expect"] != "reject"
        assert manifest.num_samples >= 1
    if problem is not None:
        assert Path(row["path"]).name in problem
        assert row["expect"] != "load", problem
        assert not list(tmp_path.glob("out-*"))
    if row["expect"] == "report" and "ages" not in row["path"]:
        check = CHECKS.get(path.name)
        if check is not None:
            check(folder, tmp_path / "again")


def check_duplicates(folder: Path, place: Path) -> None:
    bad = bad_of(folder, "csv/duplicate_paths.csv", place)
    assert bad == {
        "csv/duplicate_paths.csv:2": "imagefolder/alpha/ok_rgb.jpg has other labels or demographics in lines 2, 3, 4"
    }


def check_dos_paths(folder: Path, place: Path) -> None:
    bad = bad_of(folder, "csv/dos_paths.csv", place)
    assert list(bad) == ["csv/dos_paths.csv:3"]
    manifest = make(folder, "csv/dos_paths.csv", place, on_bad="skip")
    assert (manifest.num_samples, manifest.num_skipped) == (1, 1)


def check_escapes(folder: Path, place: Path) -> None:
    bad = bad_of(folder, "csv/path_escape.csv", place)
    assert len(bad) == 2
    assert all("leads out of the data folder" in reason for reason in bad.values())


def check_missing_file(folder: Path, place: Path) -> None:
    bad = bad_of(folder, "csv/missing_files.csv", place)
    assert bad == {"csv/missing_files.csv:3": "imagefolder/alpha/not_there.jpg: no such file"}


def check_ragged(folder: Path, place: Path) -> None:
    bad = bad_of(folder, "csv/ragged.csv", place)
    assert [key.rpartition(":")[2] for key in bad] == ["2", "3"]
    assert all("the header has 5" in reason for reason in bad.values())
    assert make(folder, "csv/ragged.csv", place, on_bad="skip").num_samples == 1


def check_uncertain(folder: Path, place: Path) -> None:
    """Flags of 1, 0, -1 and nothing by policy; anything else is an error with its line."""
    table = read_table((folder / "csv/uncertain_labels.csv").read_bytes(), "uncertain_labels.csv")
    edema, pneumonia = table.column("Edema"), table.column("Pneumonia")
    assert [row.cells[edema] for row in table.rows] == ["1.0", "-1.0", "", "nan", "2"]
    assert table.rows[-1].line == 6
    for column, wrong in (("Edema", "'2'"), ("Pneumonia", "'x'")):
        bad = bad_of(folder, "csv/uncertain_labels.csv", place, label=column, flag=True)
        assert wrong in bad["csv/uncertain_labels.csv:6"]
    assert [row.cells[pneumonia] for row in table.rows][1] == ""


def check_missing_sex(folder: Path, place: Path) -> None:
    with pytest.raises(DatasetError, match=r"no column 'Sex'.*Path, Age, No Finding"):
        make(folder, "csv/missing_sex_column.csv", place, label="No Finding", flag=True, sex="Sex")
    assert make(folder, "csv/missing_sex_column.csv", place, label="No Finding", flag=True).num_samples == 1


def check_list(folder: Path, place: Path) -> None:
    table = read_list((folder / "csv/list_labels.txt").read_bytes(), "list_labels.txt")
    assert [row.cells for row in table.rows] == [
        ("imagefolder/alpha/ok_rgb.jpg", "0"),
        ("imagefolder/alpha/with space & (1).jpg", "0"),
        ("imagefolder/beta class/ok_rgb.jpg", "1"),
    ]
    assert [entry.path for entry in table.bad] == ["list_labels.txt:6", "list_labels.txt:7"]
    assert make(folder, "csv/list_labels.txt", place, on_bad="skip").num_samples == 3


CHECKS: dict[str, Callable[[Path, Path], None]] = {
    "duplicate_paths.csv": check_duplicates,
    "dos_paths.csv": check_dos_paths,
    "path_escape.csv": check_escapes,
    "missing_files.csv": check_missing_file,
    "ragged.csv": check_ragged,
    "uncertain_labels.csv": check_uncertain,
    "missing_sex_column.csv": check_missing_sex,
    "list_labels.txt": check_list,
}


def table_of(folder: Path, name: str) -> Any:
    path = folder / "csv" / name
    if not path.is_file():
        pytest.skip(f"no {name} there")
    return read_table(path.read_bytes(), name)


def test_byte_order_mark_and_line_ends_are_no_part_of_names_and_values(folder: Path) -> None:
    table = table_of(folder, "bom_crlf.csv")
    assert table.columns == ("Path", "Sex", "Age", "No Finding", "Pneumonia")
    assert [row.cells[-1] for row in table.rows] == ["", "1.0"]


def test_quoted_commas_quotes_and_line_breaks(folder: Path) -> None:
    table = table_of(folder, "quoted.csv")
    assert [row.cells[3] for row in table.rows] == ["cough, fever", 'said "fine"', "two\nlines"]
    assert [row.line for row in table.rows] == [2, 3, 4]


def test_header_names_match_whatever_their_case_and_blanks(folder: Path) -> None:
    table = table_of(folder, "header_spacing.csv")
    row = table.rows[0]
    assert [row.cells[table.column(name)] for name in ("Path", "sex", "AGE")] == [
        "imagefolder/alpha/ok_rgb.jpg",
        "Male",
        "61",
    ]


def test_ages(folder: Path) -> None:
    table = table_of(folder, "ages.csv")
    age = table.column("Age")
    found = [parse_age(row.cells[age]) for row in table.rows]
    years = [61, None, None, None, None, None, None, 45, 61, 0, None, None, 43, None, 90]
    assert [entry.years for entry in found] == years
    reasons = [entry.reason for entry in found if entry.years is None]
    assert reasons == [
        "range",
        "range",
        "missing",
        "missing",
        "negative",
        "missing",
        "above 120 or not written in years",
        "above 120",
        "range",
    ]


def test_sexes(folder: Path) -> None:
    table = table_of(folder, "sex_values.csv")
    sexes = [row.cells[table.column("Sex")] for row in table.rows]
    assert [parse_sex(text) for text in sexes] == ["M", "F", "M", "F", "F", *[None] * 8]
    coded = [parse_sex(text, {"0": "M", "1": "F"}) for text in sexes]
    assert coded[10:12] == ["M", "F"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("empty.csv", "empty.csv: empty file, no header"),
        ("header_only.csv", "header_only.csv: a header, but no samples"),
        ("nul_byte.csv", "nul_byte.csv: NUL bytes from line 3"),
        ("latin1.csv", r"latin1.csv: line 2 is not UTF-8 \(byte 0xF6\)"),
    ],
)
def test_refusals_say_what_is_wrong(folder: Path, name: str, told: str) -> None:
    with pytest.raises(DatasetError, match=told):
        table_of(folder, name)


def test_other_dialects_are_read_and_noted(folder: Path) -> None:
    for name, note in (("semicolon_decimal_comma.csv", "';'"), ("utf16_tab.csv", "UTF-16")):
        table = table_of(folder, name)
        assert table.columns[:3] == ("Path", "Sex", "Age")
        assert note in " ".join(table.notes)


def test_a_duplicate_row_is_counted(tmp_path: Path, folder: Path) -> None:
    rows = ["Path,Sex", *["imagefolder/alpha/ok_rgb.jpg,Male"] * 3, "imagefolder/alpha/ok_gray.png,Female"]
    place = tmp_path / "data"
    (place / "imagefolder").mkdir(parents=True)
    (place / "imagefolder" / "alpha").symlink_to(folder / "imagefolder" / "alpha")
    (place / "table.csv").write_text("\n".join(rows))
    manifest = make(place, "table.csv", tmp_path / "spec")
    assert manifest.num_samples == 2
    assert any(re.search("2 rows left out: the same row again", note) for note in manifest.notes)
    (out,) = (tmp_path / "spec").glob("out-*")
    assert np.array_equal(ShardStore.open(out).table.labels, [1, 0])
