"""Rows of medical tables that say less than they should, or contradict each other."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from fedhpc import registry
from fedhpc.data.prepare import SOURCES
from fedhpc.data.sources.base import RawDataset, ScanOptions
from fedhpc.errors import DatasetError
from tests.medical_layouts import EXAMPLES

OWN = "unit (patient, lesion) not known, the image is its own"


def scan(name: str, raw: Path) -> RawDataset:
    return registry.load(SOURCES, name).SOURCE.scan(raw, ScanOptions())


def own_table(folder: Path, header: str, *rows: str, **keys: str) -> RawDataset:
    """A table of made-up images with the columns path, label and some more."""
    folder.mkdir()
    (folder / "table.csv").write_text("\n".join([f"path,label,{header}", *rows]))
    for row in rows:
        (folder / row.split(",")[0]).touch()  # a scan opens no image
    spec = {"table": "table.csv", "path": "path", "label": "label", **keys}
    (folder / "medical_table.yaml").write_text("\n".join(f"{key}: {value}" for key, value in spec.items()))
    return scan("medical_table", folder)


@pytest.mark.parametrize("text", ["", "unknown", "NaN", "N/A", "?"])
def test_images_of_unknown_patients_are_not_one_patient(text: str, tmp_path: Path) -> None:
    rows = [f"{i}.png,a,{text if i % 2 else f'p{i}'}" for i in range(8)]
    dataset = own_table(tmp_path / "own", "patient", *rows, unit="patient")
    assert [item.attributes["unit"] for item in dataset.items if int(item.path[0]) % 2] == [None] * 4
    assert f"table.csv: 4 rows kept: {OWN}" in dataset.notes


@pytest.mark.parametrize(("name", "table", "before"), [
    ("ham10000", "HAM10000_metadata", ("HAM_0000000,ISIC_0000001", "HAM_0000001,ISIC_0000002")),
    ("chexcovid", "covid/metadata.csv", ("0a,0", "1a,0")),
])  # fmt: skip
def test_the_published_tables_do_not_make_one_patient_of_them(
    name: str, table: str, before: tuple[str, ...], tmp_path: Path
) -> None:
    raw = EXAMPLES[name](tmp_path / "raw")
    text = (raw / table).read_text()
    for cells in before:
        text = text.replace(cells, f"unknown,{cells.split(',')[1]}")
    (raw / table).write_text(text)
    dataset = scan(name, raw)
    assert any(OWN in note for note in dataset.notes)
    parts = defaultdict(set)
    for item in dataset.items:
        assert "unknown" not in str(item.attributes["unit"])
        parts[item.attributes["unit"] or item.path].add(item.split)
    assert {len(found) for found in parts.values()} == {1}


@pytest.mark.parametrize(("column", "first", "second"), [("split", "train", "test"), ("environment", "here", "there")])
def test_one_image_of_two_splits_or_sites_is_refused(column: str, first: str, second: str, tmp_path: Path) -> None:
    """The first row would else decide silently, and a test image could be trained on."""
    rows = [f"a.png,x,{first}", f"b.png,y,{second}", f"a.png,x,{second}"]
    (bad,) = own_table(tmp_path / "own", column, *rows, **{column: column}).bad
    assert (bad.path, bad.reason) == ("table.csv:2", "a.png has other splits or sites in lines 2, 4")


def test_unknown_sites_are_one_environment_with_a_name(tmp_path: Path) -> None:
    dataset = own_table(tmp_path / "own", "site", "a.png,x,here", "b.png,x,", "c.png,y,?", environment="site")
    assert dataset.environments == ("here", "unknown")
    assert [item.environment for item in dataset.items] == [0, 1, 1]
    assert "table.csv: 2 rows kept: environment not known" in dataset.notes


def test_ages_are_counted_by_both_conventions(tmp_path: Path) -> None:
    """At the edges of the original, one year below ours, and around them."""
    ages = (0, 18, 19, 20, 38, 39, 40, 58, 59, 60, 78, 79, 80, 95, "", "60+")
    dataset = own_table(tmp_path / "own", "age", *(f"{i}.png,x,{age}" for i, age in enumerate(ages)), age="age")
    assert dataset.notes[-2:] == (
        "table.csv: ages: 0-19: 3, 20-39: 3, 40-59: 3, 60-79: 3, 80+: 2, not known: 2",
        "table.csv: ages, cut as the original does: 0-18: 2, 19-38: 3, 39-58: 3, 59-78: 3, 79+: 3, not known: 2",
    )
    assert not any("ages" in note for note in own_table(tmp_path / "other", "age", "a.png,x,61").notes)


def test_patients_in_several_splits_are_counted(tmp_path: Path) -> None:
    rows = [f"{i}.png,x,p{i // 2},{'test' if i in (0, 4, 5) else 'train'}" for i in range(8)]
    dataset = own_table(tmp_path / "own", "patient,part", *rows, unit="patient", split="part")
    assert "table.csv: 1 units (patients) have rows in several splits" in dataset.notes
    rest = own_table(tmp_path / "rest", "patient,part", *rows[2:], unit="patient", split="part")
    assert not any("several splits" in note for note in rest.notes)


def test_the_datasets_own_attributes_can_not_be_named_again(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"attributes names age, sex; use the key"):
        own_table(tmp_path / "own", "age,sex", "a.png,x,61,M", attributes="[age, sex]")


def test_too_few_other_xrays_for_the_new_disease_are_told(tmp_path: Path) -> None:
    notes = scan("chexcovid", EXAMPLES["chexcovid"](tmp_path / "raw")).notes
    assert not any("not 12 for each" in note for note in notes)
    raw = EXAMPLES["chexcovid"](tmp_path / "few")
    table = raw / "CheXpert" / "train_cheXbert.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:61]))
    assert any("X-rays for 9 of COVID-19, not 12 for each" in note for note in scan("chexcovid", raw).notes)
