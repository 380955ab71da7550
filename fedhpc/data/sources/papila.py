"""PAPILA: fundus images of both eyes of 244 patients, for glaucoma (Kovalyk et al., 2022)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from fedhpc.data._files import FileTree, open_tree
from fedhpc.data._medical import Intake, Sample, image_reader, require_file
from fedhpc.data._tables import Table, csv_records, make_table
from fedhpc.data._workbooks import workbook_records
from fedhpc.data.sources.base import RawDataset, ScanOptions, existing
from fedhpc.errors import DatasetError

CLASSES = ("healthy", "glaucoma", "suspect")
SEX = {"0": "M", "1": "F"}
_ID = re.compile(r"#?\s*(\d+)")
_NEEDED = {"age", "gender", "diagnosis"}


@dataclass(frozen=True)
class Papila:
    """Units are patients, with both eyes; a patient's eyes may differ in diagnosis."""

    name: str = "papila"
    embedded: bool = False
    layout: str = "a folder with ClinicalData/patient_data_{od,os}.xlsx (or .csv) and FundusImages/RET###{OD,OS}.jpg"

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Read the tables of the right (OD) and the left (OS) eyes."""
        raw = existing(raw, self)
        tree = open_tree(raw)
        both = Intake(self.name)
        for eye in ("od", "os"):
            names = (f"patient_data_{eye}.csv", f"patient_data_{eye}.xlsx")
            table = _read(tree, require_file(tree, raw, self.name, *names))
            both.absorb(_samples(table, eye.upper()))
        return both.dataset(
            tree.listing.files, image_reader(tree, options.channels), CLASSES, (self.name,), 0.3, by_name=True
        )


def _read(tree: FileTree, path: str) -> Table:
    """Read a table whose header may take two lines: the line that names age, gender and diagnosis counts."""
    content = tree.read(path)
    notes: list[str] = []
    if path.lower().endswith(".xlsx"):
        records = workbook_records(content, path)
    else:
        records, notes = csv_records(content, path)
    for number, (_, cells) in enumerate(records[:4]):
        names = {cell.strip().casefold() for cell in cells}
        if names >= _NEEDED:
            header = [cell or ("ID" if place == 0 else f"column {place + 1}") for place, cell in enumerate(cells)]
            rest = [record for record in records[number + 1 :] if _ID.fullmatch(record[1][0].strip())]
            return make_table(path, [(records[number][0], header), *rest], notes)
    raise DatasetError(f"{path}: no line with the columns Age, Gender and Diagnosis among the first four")


def _samples(table: Table, eye: str) -> Intake:
    intake = Intake.of(table)
    patient = table.optional("ID") or 0
    age, sex, label = table.column("Age"), table.column("Gender"), table.column("Diagnosis")
    for row in table.rows:
        cells = row.cells
        number = _ID.fullmatch(cells[patient])
        diagnosis = cells[label].removesuffix(".0")
        if diagnosis not in ("0", "1", "2"):
            intake.refuse(row.line, f"Diagnosis is '{cells[label]}', expected 0 (healthy), 1 (glaucoma) or 2 (suspect)")
            continue
        attributes = intake.demographics(cells[age], cells[sex].removesuffix(".0"), SEX)
        if attributes is None or number is None:
            continue
        attributes["eye"] = eye
        name = f"RET{int(number[1]):03d}{eye}.jpg"
        intake.samples.append(Sample(row.line, name, int(diagnosis), number[1].lstrip("0"), attributes=attributes))
    return intake


SOURCE = Papila()
