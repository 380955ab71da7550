"""One's own images and table: a YAML file says which column is what.

The raw path is that YAML file, or a folder with a `medical_table.yaml` in it. Its keys are those of `TableSpec`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from fedhpc.config import Limits, Section, from_tree, read_yaml
from fedhpc.data._files import open_tree
from fedhpc.data._medical import Attributes, Intake, Sample, image_reader
from fedhpc.data._tables import Table, is_missing, read_list, read_table
from fedhpc.data._workbooks import read_workbook
from fedhpc.data.schema import UNASSIGNED, shown, split_code
from fedhpc.data.sources.base import RawDataset, ScanOptions, existing
from fedhpc.errors import ConfigError, DataRequestError

SPEC = "medical_table.yaml"
_FLAGS = {"1": 1, "0": 0, "-1": -1}
_OWN_KEYS = ("age", "sex", "unit")
"""Attributes that a dataset has by the keys of these names."""
Policy = Literal["zero", "one", "drop"]


@dataclass(frozen=True, kw_only=True)
class TableSpec(Section):
    """Which column of the table is what; only `table` and `label` are required."""

    table: Annotated[str, "file name: .csv, .xlsx, or .txt with `path label` lines"]
    label: Annotated[str, "column of the class; of a flag (1, 0, -1, blank) with `flag: true`"] = "Label"
    root: Annotated[str, "folder of the table and the images, relative to this file"] = "."
    path: Annotated[str, "column of the image's path"] = "Path"
    pattern: Annotated[str, "path below `root`, with {} for what the path column holds"] = "{}"
    classes: Annotated[tuple[str, ...], "class names in order; empty: those in the table, sorted"] = ()
    flag: Annotated[bool, "the label is a flag: classes are its absence and its presence"] = False
    uncertain: Annotated[Policy, "what a flag of -1 counts as"] = "zero"
    blank: Annotated[Policy, "what a blank flag counts as"] = "zero"
    unit: Annotated[str | None, "column of the patient (or lesion); never divided between clients"] = None
    split: Annotated[str | None, "column of train, validation, test or holdout; null: by units"] = None
    environment: Annotated[str | None, "column of the site or source"] = None
    age: Annotated[str | None, "column of the age"] = None
    sex: Annotated[str | None, "column of the sex"] = None
    male: Annotated[tuple[str, ...], "further cells that mean male, such as '0'"] = ()
    female: Annotated[tuple[str, ...], "further cells that mean female"] = ()
    attributes: Annotated[tuple[str, ...], "further columns to keep, as categories"] = ()
    unknown: Annotated[Literal["keep", "drop"], "rows whose age or sex is not known"] = "keep"
    test_fraction: Annotated[float, Limits(above=0, below=1), "share of the units for validation and test"] = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        taken = [name for name in self.attributes if name in _OWN_KEYS]
        if taken:
            raise ConfigError(f"attributes names {', '.join(taken)}; use the key of that name instead")


@dataclass(frozen=True)
class MedicalTable:
    """Any table of images with labels, patients and demographics."""

    name: str = "medical_table"
    embedded: bool = False
    layout: str = f"a YAML file that names the table and its columns, or a folder with {SPEC}"

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Read the table that the YAML file names."""
        raw = existing(raw, self)
        spec, where = _spec(raw)
        root = where.parent / spec.root
        if not root.is_dir():
            raise DataRequestError(f"{shown(str(where))}: its root '{shown(str(root))}' is no folder")
        tree = open_tree(root)
        if spec.table not in tree.listing.files:
            raise DataRequestError(f"{shown(str(where))}: no table '{shown(spec.table)}' in {shown(str(root))}")
        table = _read(tree.read(spec.table), spec.table)
        classes, places = _classes(table, spec), _environments(table, spec)
        intake = _samples(table, spec, classes, places)
        decode = image_reader(tree, options.channels)
        return intake.dataset(tree.listing.files, decode, classes, places, spec.test_fraction)


def _spec(raw: Path) -> tuple[TableSpec, Path]:
    path = raw / SPEC if raw.is_dir() else raw
    if not path.is_file():
        raise DataRequestError(
            f"{shown(str(raw))}: no {SPEC} in it; it names the table and says which column is what (docs/medical.md); "
            "put it there, or give such a file itself as --raw"
        )
    try:
        return from_tree(TableSpec, read_yaml(str(path)), str(path)), path
    except ConfigError as error:
        raise DataRequestError(f"{error}") from None


def _read(content: bytes, name: str) -> Table:
    if name.lower().endswith(".xlsx"):
        return read_workbook(content, name)
    return read_list(content, name) if name.lower().endswith(".txt") else read_table(content, name)


def _classes(table: Table, spec: TableSpec) -> tuple[str, ...]:
    column = table.column(spec.label)
    if spec.flag:
        return spec.classes or (f"no {spec.label}", spec.label)
    found = sorted({row.cells[column] for row in table.rows if not is_missing(row.cells[column])})
    if spec.classes and len(set(spec.classes)) != len(spec.classes):
        raise DataRequestError(f"{table.name}: classes names one twice: {list(spec.classes)}")
    return spec.classes or tuple(found)


def _environments(table: Table, spec: TableSpec) -> tuple[str, ...]:
    if spec.environment is None:
        return (spec.table,)
    column = table.column(spec.environment)
    return tuple(sorted({_place(row.cells[column]) for row in table.rows}))


def _place(text: str) -> str:
    """Name of a row's environment; one for all whose cell does not tell it."""
    return "unknown" if is_missing(text) else text


def _samples(table: Table, spec: TableSpec, classes: tuple[str, ...], places: tuple[str, ...]) -> Intake:
    intake = Intake.of(table, drop_unknown=spec.unknown == "drop")
    wanted = {name: getattr(spec, name) for name in ("path", "label", "unit", "split", "environment", "age", "sex")}
    at = {name: table.column(column) for name, column in wanted.items() if column is not None}
    kept = [(name, table.column(name)) for name in spec.attributes]
    coding = {text.casefold(): sex for sex, texts in (("M", spec.male), ("F", spec.female)) for text in texts}
    for row in table.rows:
        cells = {name: row.cells[place] for name, place in at.items()}
        if is_missing(cells["path"]):
            intake.refuse(row.line, "no path")
            continue
        label = _label(cells["label"], spec, classes, intake, row.line)
        split = _split(cells.get("split"), intake, row.line)
        if label is None or split is None:
            continue
        attributes: Attributes | None = intake.demographics(cells.get("age"), cells.get("sex"), coding)
        if attributes is None:
            continue
        attributes.update({name: row.cells[place] or None for name, place in kept})
        intake.samples.append(
            Sample(
                row.line,
                spec.pattern.replace("{}", cells["path"]),
                label,
                intake.unit(cells["unit"]) if "unit" in cells else "",
                _environment(cells.get("environment"), places, intake),
                split,
                attributes,
            )
        )
    return intake


def _environment(text: str | None, places: tuple[str, ...], intake: Intake) -> int:
    """Environment index; 0 without such a column."""
    if text is None:
        return 0
    intake.unknown["environment not known"] += is_missing(text)
    return places.index(_place(text))


def _label(text: str, spec: TableSpec, classes: tuple[str, ...], intake: Intake, line: int) -> int | None:
    """Class index, or None for a row that is left out or wrong."""
    if spec.flag:
        flag = None if is_missing(text) else _FLAGS.get(text.removesuffix(".0"), 2)
        if flag == 2:
            intake.refuse(line, f"'{spec.label}' is '{shown(text)}', expected 1, 0, -1 or nothing")
            return None
        policy = spec.blank if flag is None else spec.uncertain if flag == -1 else ("zero", "one")[flag]
        if policy == "drop":
            intake.dropped[f"'{spec.label}' is {'blank' if flag is None else 'uncertain'}"] += 1
        return {"zero": 0, "one": 1, "drop": None}[policy]
    if text in classes:
        return classes.index(text)
    intake.refuse(line, f"'{spec.label}' is '{shown(text)}', expected one of {', '.join(map(shown, classes[:20]))}")
    return None


def _split(text: str | None, intake: Intake, line: int) -> int | None:
    if text is None:
        return UNASSIGNED
    code = split_code(text)
    if code is None:
        intake.refuse(line, f"split is '{shown(text)}', expected train, validation, test or holdout")
    return code


SOURCE = MedicalTable()
