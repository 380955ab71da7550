"""The medical sources: stand-ins in the original layouts, and the real tables where they are there."""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

from fedhpc import registry
from fedhpc.data._tables import read_table
from fedhpc.data.ages import brackets
from fedhpc.data.prepare import SOURCES, prepare, verify
from fedhpc.data.shards import ShardStore
from fedhpc.data.sources.base import RawDataset, ScanOptions
from fedhpc.data.sources.ol3i import windowed
from fedhpc.errors import DatasetError
from tests.medical_layouts import EXAMPLES, save_image, write_csv

PUBLIC = Path(__file__).resolve().parents[2] / "golden" / "fedmedicl" / "public_split_counts.json"


def scan(name: str, raw: Path) -> RawDataset:
    return registry.load(SOURCES, name).SOURCE.scan(raw, ScanOptions())


@pytest.fixture(params=EXAMPLES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_stand_in_becomes_a_dataset_that_verifies(name: str, tmp_path: Path) -> None:
    raw = EXAMPLES[name](tmp_path / "raw")
    manifest = prepare(name, raw, tmp_path / "out", size=12)
    assert verify(tmp_path / "out") == []
    store = ShardStore.open(tmp_path / "out")
    assert store.num_samples == manifest.num_samples > 0
    found = scan(name, raw)
    assert [item.path for item in found.items] == [item.path for item in scan(name, raw).items]
    assert len({item.path for item in found.items}) == len(found.items)
    first = found.items[0]
    assert first.attributes.keys() <= found.attributes.keys()


def test_no_unit_is_in_two_parts(name: str, tmp_path: Path) -> None:
    parts = defaultdict(set)
    dataset = scan(name, EXAMPLES[name](tmp_path / "raw"))
    for item in dataset.items:
        parts[item.attributes.get("unit") or item.path].add(item.split)
    assert all(len(found) == 1 for found in parts.values())
    assert {split for found in parts.values() for split in found} == {0, 1, 2}


def test_a_missing_image_is_named_with_its_line_and_left_out_on_request(name: str, tmp_path: Path) -> None:
    if name == "ol3i":
        pytest.skip("its images lie in one file")
    raw = EXAMPLES[name](tmp_path / "raw")
    dataset = scan(name, raw)
    victim = dataset.items[0].key
    root = raw / "data" if name == "medical_table" else raw
    (root / victim).unlink()
    again = scan(name, raw)
    assert again.bad[0].reason.endswith("no such file")
    assert again.bad[0].path.rpartition(":")[2].isdigit()
    assert len(again.items) == len(dataset.items) - 1
    with pytest.raises(DatasetError, match="1 bad file"):
        prepare(name, raw, tmp_path / "out", size=12)
    assert prepare(name, raw, tmp_path / "out", size=12, on_bad="skip").num_skipped == 1


@pytest.mark.parametrize("kind", ["absent", "empty", "text_file"])
def test_a_wrong_raw_place_is_named(name: str, kind: str, tmp_path: Path) -> None:
    raw = tmp_path / "raw-place"
    if kind == "empty":
        raw.mkdir()
    elif kind == "text_file":
        raw.write_text("not a dataset")
    with pytest.raises(DatasetError, match="raw-place"):
        scan(name, raw)


def test_what_was_left_out_is_counted(tmp_path: Path) -> None:
    told = " ".join(scan("ham10000", EXAMPLES["ham10000"](tmp_path / "ham")).notes)
    assert "1 rows left out: age not known: missing" in told
    assert "1 rows left out: sex not known" in told
    told = " ".join(scan("medical_table", EXAMPLES["medical_table"](tmp_path / "table")).notes)
    assert "13 rows kept: age not known: missing" in told
    assert "13 rows kept: age not known: range" in told


def test_of_two_ham_tables_the_one_with_sites_is_read(tmp_path: Path) -> None:
    raw = EXAMPLES["ham10000"](tmp_path / "raw")
    assert scan("ham10000", raw).environments == ("site0", "site1", "site2")
    (raw / "HAM10000_metadata").unlink()
    assert scan("ham10000", raw).environments == ("ham10000",)


def test_an_unknown_diagnosis_is_named(tmp_path: Path) -> None:
    raw = EXAMPLES["ham10000"](tmp_path / "raw")
    table = (raw / "HAM10000_metadata").read_text().replace("ISIC_0000004,mel", "ISIC_0000004,melanoma")
    (raw / "HAM10000_metadata").write_text(table)
    (bad,) = scan("ham10000", raw).bad
    assert bad.path == "HAM10000_metadata:6"
    assert "melanoma" in bad.reason


def test_chexpert_labels_and_races(tmp_path: Path) -> None:
    raw = EXAMPLES["chexpert"](tmp_path / "raw")
    dataset = scan("chexpert", raw)
    table = read_table((raw / "train_cheXbert.csv").read_bytes(), "table")
    value = {row.cells[0]: row.cells[5] for row in table.rows}
    assert all(item.label == (value[item.path] == "1.0") for item in dataset.items)
    assert {item.attributes["race"] for item in dataset.items} == {"White", "Asian"}
    assert any("1 rows repeat a patient" in note for note in dataset.notes)
    (raw / "CHEXPERT DEMO.csv").unlink()
    assert any("PRIMARY_RACE" in note for note in scan("chexpert", raw).notes)


def test_covid_is_thinned_by_whole_patients_and_never_in_train_and_validation(tmp_path: Path) -> None:
    raw = EXAMPLES["chexcovid"](tmp_path / "raw")
    dataset = scan("chexcovid", raw)
    counts = Counter((item.split, item.label == 2) for item in dataset.items)
    for split in (0, 1, 2):
        available = counts[split, False]
        assert 0 < available <= 12 * counts[split, True] + 2
    assert {item.environment for item in dataset.items if item.label == 2} == {1}
    table = raw / "covid" / "metadata.csv"
    table.write_text(table.read_text().replace("Pneumonia/Viral/COVID-19", "COVID-19"))
    with pytest.raises(DatasetError, match="another release"):
        scan("chexcovid", raw)


def test_both_eyes_of_a_patient_stay_together(tmp_path: Path) -> None:
    dataset = scan("papila", EXAMPLES["papila"](tmp_path / "raw"))
    eyes = defaultdict(set)
    for item in dataset.items:
        eyes[item.attributes["unit"]].add(item.attributes["eye"])
    assert all(found == {"OD", "OS"} for found in eyes.values())
    assert {item.attributes["sex"] for item in dataset.items} == {"M", "F"}


def test_hounsfield_window() -> None:
    values = np.array([[-1000, 0, 1000], [-3000, 3071, 500]])
    assert windowed(values).tolist() == [[0, 128, 255], [0, 255, 191]]


def test_exams_keep_their_official_split(tmp_path: Path) -> None:
    raw = EXAMPLES["ol3i"](tmp_path / "raw")
    dataset = scan("ol3i", raw)
    table = read_table((raw / "clinical_data.csv").read_bytes(), "table")
    official = {row.cells[0]: row.cells[6] for row in table.rows}
    assert all(("train", "val", "test")[item.split] == official[item.path] for item in dataset.items)
    assert any("1 rows left out: no split for one year" in note for note in dataset.notes)
    (raw / "l3_slices.h5").unlink()
    with pytest.raises(DatasetError, match=r"l3_slices\.h5"):
        scan("ol3i", raw)


def test_keys_of_a_table_are_checked(tmp_path: Path) -> None:
    raw = EXAMPLES["medical_table"](tmp_path / "raw")
    spec = raw / "medical_table.yaml"
    good = spec.read_text()
    for line, told in (("agee: Age", "agee"), ("age: Years", "no column 'Years'"), ("root: nowhere", "nowhere")):
        spec.write_text("\n".join([x for x in good.splitlines() if x.split(":")[0] != line.split(":")[0]] + [line]))
        with pytest.raises(DatasetError, match=told):
            scan("medical_table", raw)


def test_equal_pictures_of_other_rows_are_told(tmp_path: Path) -> None:
    raw = EXAMPLES["fitzpatrick17k"](tmp_path / "raw")
    save_image(raw / "images" / f"{0:032x}.jpg", 1)
    manifest = prepare("fitzpatrick17k", raw, tmp_path / "out")
    assert any("same pixels" in note for note in manifest.notes)


def test_real_ham_table_gives_the_published_split(shared_data: Path, tmp_path: Path) -> None:
    """With every image in place (empty files suffice for a scan): counts of the original's preprocessing."""
    table = shared_data / "skin" / "HAM10000_metadata"
    shutil.copy(table, tmp_path)
    rows = read_table(table.read_bytes(), "table").rows
    for row in rows:
        (tmp_path / f"{row.cells[1]}.jpg").touch()
    dataset = scan("ham10000", tmp_path)
    expected = json.loads(PUBLIC.read_text())["HAM10000"]
    assert (len(rows), len(dataset.items)) == (expected["raw_rows"], expected["after_age_filter"])
    for code, part in enumerate(("train", "val", "test")):
        own = [item for item in dataset.items if item.split == code]
        assert np.bincount([i.label for i in own], minlength=7).tolist() == expected[part]["class"]
        ages = np.array([i.attributes["age"] for i in own])
        assert np.bincount(brackets(ages, (19, 39, 59, 79))).tolist() == expected[part]["Age_multi"]
        assert np.bincount(brackets(ages, (20, 40, 60, 80))).tolist() == expected[part]["Age_multi"]
        assert len({i.attributes["unit"] for i in own}) == expected[part]["lesions"]
        assert sum(i.attributes["sex"] == "M" for i in own) == expected[part]["M"]


def test_real_skin_pack_copes_with_missing_images(shared_data: Path, tmp_path: Path) -> None:
    manifest = prepare("ham10000", shared_data / "skin", tmp_path / "out", size=16, on_bad="skip")
    assert manifest.num_samples == 126
    assert manifest.num_skipped == 9948 - 126
    with pytest.raises(DatasetError, match="9822 bad files"):
        prepare("ham10000", shared_data / "skin", tmp_path / "other", size=16)


def test_real_chest_xrays_by_patient(shared_data: Path, tmp_path: Path) -> None:
    spec = tmp_path / "chest.yaml"
    keys = {"root": shared_data / "chest-xray", "table": "metadata.csv", "label": "Class", "unit": "Patient ID"}
    lines = [f"{k}: {v}" for k, v in keys.items()] + ["age: Age", "sex: Sex", "environment: Source"]
    spec.write_text("\n".join([*lines, "classes: [No_findings, Pneumonia, Covid-19]"]))
    manifest = prepare("medical_table", spec, tmp_path / "out", size=24, channels=1)
    store = ShardStore.open(tmp_path / "out")
    assert np.bincount(store.table.labels).tolist() == [250, 250, 124]
    assert len(manifest.attributes["unit"]["values"]) == 468
    known = store.table.attributes["sex"] >= 0, ~np.isnan(store.table.attributes["age"])
    assert [int(k.sum()) for k in known] == [607, 599]
    parts = [set(store.table.attributes["unit"][store.table.split == code].tolist()) for code in (0, 1, 2)]
    assert sum(map(len, parts)) == len(set().union(*parts))


def test_old_release_of_the_covid_table_is_told(shared_data: Path, tmp_path: Path) -> None:
    EXAMPLES["chexpert"](tmp_path)
    shutil.copy(shared_data / "metadata" / "covid-chestxray-dataset" / "metadata.csv", tmp_path)
    with pytest.raises(DatasetError, match="another release"):
        scan("chexcovid", tmp_path)


def test_real_fitzpatrick_sample(shared_data: Path, tmp_path: Path) -> None:
    table = shared_data / "metadata" / "fitzpatrick17k_sample4000.csv"
    rows = read_table(table.read_bytes(), "table").rows
    header = ("md5hash", "fitzpatrick_scale", "three_partition_label")
    write_csv(tmp_path / "fitzpatrick17k.csv", header, [(r.cells[0], r.cells[1], r.cells[5]) for r in rows])
    for row in rows:
        (tmp_path / f"{row.cells[0]}.jpg").touch()
    dataset = scan("fitzpatrick17k", tmp_path)
    assert len(dataset.items) == 4000 - 118
    assert any("118 rows left out: skin type not known" in note for note in dataset.notes)
