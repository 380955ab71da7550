"""Small stand-ins of the medical datasets in their original raw layouts; made up, pure functions of a seed."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np

from tests.raw_layouts import pixels

HAM = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")


def save_image(path: Path, seed: int, side: int = 12, channels: int = 3) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    image = pixels(seed, side, side, channels)
    Image.fromarray(image[:, :, 0] if channels == 1 else image).save(path)


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def write_xlsx(path: Path, rows: Sequence[Sequence[object]]) -> None:
    """A workbook with shared texts and plain numbers, as spreadsheets write them."""
    texts: list[str] = []
    lines = []
    for r, row in enumerate(rows, 1):
        cells = []
        for c, value in enumerate(row):
            place = f"{chr(ord('A') + c)}{r}"
            if isinstance(value, str) and value:
                texts.append(value)
                cells.append(f'<c r="{place}" t="s"><v>{len(texts) - 1}</v></c>')
            elif value != "":
                cells.append(f'<c r="{place}"><v>{value}</v></c>')
        lines.append(f'<row r="{r}">{"".join(cells)}</row>')
    space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        sheet = f"<worksheet {space}><sheetData>{''.join(lines)}</sheetData></worksheet>"
        archive.writestr("xl/worksheets/sheet1.xml", sheet)
        shared = "".join(f"<si><t>{escape(t)}</t></si>" for t in texts)
        archive.writestr("xl/sharedStrings.xml", f"<sst {space}>{shared}</sst>")


def make_ham10000(folder: Path, num: int = 60) -> Path:
    rng = np.random.default_rng(1)
    rows = []
    for i in range(num):
        age = "" if i == 5 else f"{5 * rng.integers(0, 18)}.0"
        sex = "unknown" if i == 7 else ("male", "female")[int(rng.integers(2))]
        rows.append((f"HAM_{i // 2:07d}", f"ISIC_{i:07d}", HAM[i % 7], "histo", age, sex, "back", f"site{i % 3}"))
        save_image(folder / f"HAM10000_images_part_{1 + i % 2}" / f"ISIC_{i:07d}.{'JPG' if i == 9 else 'jpg'}", i)
    header = ("lesion_id", "image_id", "dx", "dx_type", "age", "sex", "localization", "dataset")
    write_csv(folder / "HAM10000_metadata", header, rows)
    write_csv(folder / "HAM10000_metadata.csv", header[:-1], [row[:-1] for row in rows])
    return folder


def make_fitzpatrick17k(folder: Path, num: int = 60) -> Path:
    kinds = ("benign", "malignant", "non-neoplastic")
    rows = []
    for i in range(num):
        name = f"{i:032x}"
        scale = -1 if i == 3 else 1 + i % 6
        rows.append((name, scale, scale, "psoriasis", "inflammatory", kinds[i % 3], "", f"https://example.org/{i}", ""))
        save_image(folder / "images" / f"{name}.jpg", i)
    header = ("md5hash", "fitzpatrick_scale", "fitzpatrick_centaur", "label", "nine_partition_label")
    write_csv(folder / "fitzpatrick17k.csv", (*header, "three_partition_label", "qc", "url", "url_alphanum"), rows)
    return folder


def make_chexpert(folder: Path, num: int = 90) -> Path:
    rng = np.random.default_rng(2)
    rows = []
    for i in range(num):
        patient = f"patient{i // 3:05d}"
        path = f"CheXpert-v1.0/train/{patient}/study1/view{1 + i % 3}_frontal.jpg"
        sex = "Unknown" if i // 3 == 4 else ("Male", "Female")[(i // 3) % 2]
        value = ("1.0", "0.0", "-1.0", "")[int(rng.integers(4))]
        rows.append((path, sex, 20 + (i // 3) * 2 % 70, "Frontal", "AP", value))
        save_image(folder / path, i, channels=1)
    write_csv(folder / "train_cheXbert.csv", ("Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", "No Finding"), rows)
    races = [(f"patient{i:05d}", ("White", "Asian")[i % 2]) for i in range(num // 3)]
    write_csv(folder / "CHEXPERT DEMO.csv", ("PATIENT", "PRIMARY_RACE"), [*races, (races[0][0], "Other")])
    return folder


def make_chexcovid(folder: Path) -> Path:
    make_chexpert(folder / "CheXpert", 360)
    rows = []
    for i in range(14):
        view = ("PA", "AP", "AP Supine", "L")[i % 4]
        finding = "Pneumonia/Viral/COVID-19" if i != 2 else "Pneumonia/Bacterial"
        rows.append(
            (f"{i // 2}a", 0, "MF"[i % 2] if i != 4 else "", 50 + i, finding, view, f"covid{i}.png", 'long, "note"')
        )
        save_image(folder / "covid" / "images" / f"covid{i}.png", 1000 + i)
    header = ("patientid", "offset", "sex", "age", "finding", "view", "filename", "clinical_notes")
    write_csv(folder / "covid" / "metadata.csv", header, rows)
    return folder


def make_papila(folder: Path, num: int = 24) -> Path:
    """Workbooks with a two-line header and a blank line; the left eyes' table is a hand-made CSV."""
    for eye in ("od", "os"):
        rows = [[f"#{i + 2:03d}", 40 + i, i % 2, i % 3] for i in range(num)]
        for i in range(num):
            save_image(folder / "FundusImages" / f"RET{i + 2:03d}{eye.upper()}.jpg", i)
        if eye == "od":
            top = [["", "", "", ""], ["ID", "Age", "Gender", "Diagnosis"], ["", "", "", ""]]
            write_xlsx(folder / "ClinicalData" / "patient_data_od.xlsx", [["Patients", "", "", ""], *top[1:], *rows])
        else:
            write_csv(folder / "ClinicalData" / "patient_data_os.csv", ("ID", "Age", "Gender", "Diagnosis"), rows)
    return folder


def make_ol3i(folder: Path, num: int = 30) -> Path:
    import h5py

    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    parts = ("train", "train", "train", "val", "test")
    rows = [(f"E{i:04d}", 25, 0, 30 + i, i % 2, i % 5 == 0, parts[i % 5] if i != 7 else "") for i in range(num)]
    write_csv(
        folder / "clinical_data.csv",
        ("anon_id", "bmi", "smoker", "age", "sex", "label_1y", "set_1y"),
        [(*row[:5], int(row[5]), row[6]) for row in rows],
    )
    with h5py.File(folder / "l3_slices.h5", "w") as file:
        for row in rows:
            file[row[0]] = rng.integers(-1024, 3071, (16, 16)).astype(np.int16)
    return folder


def make_medical_table(folder: Path, num: int = 40) -> Path:
    rows = []
    for i in range(num):
        rows.append((f"img/{i}.png", ("sick", "well")[i % 2], f"p{i // 2}", ("61", "60+", "")[i % 3], "MF"[i % 2], "A"))
        save_image(folder / "data" / "img" / f"{i}.png", i)
    write_csv(folder / "data" / "table.csv", ("File", "State", "Patient", "Age", "Sex", "Site"), rows)
    keys = {"root": "data", "table": "table.csv", "path": "File", "label": "State", "unit": "Patient"}
    lines = [
        *(f"{k}: {v}" for k, v in keys.items()),
        "age: Age",
        "sex: Sex",
        "environment: Site",
        "classes: [well, sick]",
    ]
    (folder / "medical_table.yaml").write_text("\n".join(lines))
    return folder


EXAMPLES: dict[str, Callable[[Path], Path]] = {
    "ham10000": make_ham10000,
    "fitzpatrick17k": make_fitzpatrick17k,
    "chexpert": make_chexpert,
    "chexcovid": make_chexcovid,
    "papila": make_papila,
    "ol3i": make_ol3i,
    "medical_table": make_medical_table,
}
