"""CheXpert's tables: labels, demographics and races of chest X-rays (Irvin et al., 2019)."""

from __future__ import annotations

import re

from fedhpc.data._files import FileTree
from fedhpc.data._medical import Intake, Sample, find_file
from fedhpc.data._tables import is_missing, read_table
from fedhpc.data._workbooks import read_workbook
from fedhpc.errors import DatasetError

CLASSES = ("finding", "no finding")
TABLES = ("train_cheXbert.csv", "train.csv")
RACES = ("CHEXPERT DEMO.csv", "CHEXPERT DEMO.xlsx")
_PATIENT = re.compile(r"patient\d+")
_VALUES = {"1": 1, "0": 0, "-1": 0}
_NO_FINDING = "No Finding"


def chexpert_samples(tree: FileTree, path: str) -> Intake:
    """Samples of a CheXpert table: label 1 for "No Finding", else 0, also where it is blank or uncertain (-1).

    Units are patients. Attributes: age, sex, view, and race where the demographics file is there.
    """
    table = read_table(tree.read(path), path)
    intake = Intake.of(table)
    image, label = table.column("Path"), table.column(_NO_FINDING)
    age, sex, view = table.column("Age"), table.column("Sex"), table.optional("AP/PA")
    races = _races(tree, intake)
    folder = path[: path.rfind("/") + 1]
    for row in table.rows:
        cells = row.cells
        patient = _PATIENT.search(cells[image])
        text = "0" if is_missing(cells[label]) else cells[label].removesuffix(".0")
        if text not in _VALUES:
            intake.refuse(row.line, f"'{_NO_FINDING}' is '{cells[label]}', expected 1, 0, -1 or nothing")
            continue
        if patient is None:
            intake.refuse(row.line, f"no patientNNNNN in the path '{cells[image]}'")
            continue
        attributes = intake.demographics(cells[age], cells[sex])
        if attributes is None:
            continue
        if view is not None:
            attributes["view"] = cells[view] or None
        if races:
            attributes["race"] = races.get(patient[0])
        intake.samples.append(Sample(row.line, folder + cells[image], _VALUES[text], patient[0], attributes=attributes))
    return intake


def _races(tree: FileTree, intake: Intake) -> dict[str, str]:
    """Patient -> race, of the first row of each patient."""
    path = find_file(tree, *RACES)
    if path is None:
        intake.notes.append(f"no '{RACES[0]}' (columns PATIENT, PRIMARY_RACE): race is not known")
        return {}
    reader = read_workbook if path.lower().endswith(".xlsx") else read_table
    table = reader(tree.read(path), path)
    patient, race = table.column("PATIENT"), table.column("PRIMARY_RACE")
    found: dict[str, str] = {}
    repeated = 0
    for row in table.rows:
        repeated += row.cells[patient] in found
        if not is_missing(row.cells[race]):
            found.setdefault(row.cells[patient], row.cells[race])
    if repeated:
        intake.notes.append(f"{path}: {repeated} rows repeat a patient; the first row counts")
    if not found:
        raise DatasetError(f"{path}: no race of any patient in it")
    return found
