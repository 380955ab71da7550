"""CheXpert's X-rays with the COVID-19 X-rays of covid-chestxray-dataset as a third class (Cohen et al., 2020)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedhpc.data import _chexpert
from fedhpc.data._files import FileTree, open_tree
from fedhpc.data._medical import Intake, Sample, image_reader, require_file
from fedhpc.data._tables import read_table
from fedhpc.data._units import three_parts
from fedhpc.data.sources.base import RawDataset, ScanOptions, existing
from fedhpc.errors import DatasetError
from fedhpc.seeding import generator

CLASSES = (*_chexpert.CLASSES, "covid-19")
ENVIRONMENTS = ("chexpert", "covid-chestxray")
FINDING = "Pneumonia/Viral/COVID-19"
VIEWS = ("PA", "AP", "AP Supine")
OTHERS_PER_COVID = 12
"""CheXpert samples per COVID sample in each part, as published; `novel_disease` thins them further."""


@dataclass(frozen=True)
class Chexcovid:
    """Units are patients. Frontal COVID X-rays only; CheXpert is thinned by whole patients, the same at every run."""

    name: str = "chexcovid"
    embedded: bool = False
    layout: str = "a folder with metadata.csv and images/ (COVID), and CheXpert's table and images, also nested"

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Read both tables."""
        raw = existing(raw, self)
        tree = open_tree(raw)
        chexpert_path = require_file(tree, raw, self.name, *_chexpert.TABLES)
        covid = _covid_samples(tree, require_file(tree, raw, self.name, "metadata.csv"))
        others = _chexpert.chexpert_samples(tree, chexpert_path)
        for intake in (covid, others):
            codes = three_parts([sample.unit or sample.path for sample in intake.samples], 0.2)
            for sample, code in zip(intake.samples, codes, strict=True):
                sample.split = int(code)
        wanted = Counter(s.split for s in covid.samples)
        kept = _thinned(others.samples, wanted)
        if len(kept) < OTHERS_PER_COVID * wanted.total():
            others.notes.append(
                f"{chexpert_path}: {len(kept)} X-rays for {wanted.total()} of COVID-19, not {OTHERS_PER_COVID} for each"
            )
        others.dropped[f"beyond {OTHERS_PER_COVID} per COVID X-ray"] += len(others.samples) - len(kept)
        others.samples = kept
        both = Intake(self.name)
        for intake in (others, covid):
            both.absorb(intake)
        return both.dataset(tree.listing.files, image_reader(tree, options.channels), CLASSES, ENVIRONMENTS)


def _covid_samples(tree: FileTree, path: str) -> Intake:
    table = read_table(tree.read(path), path)
    intake = Intake.of(table)
    patient, sex, age = table.column("patientid"), table.column("sex"), table.column("age")
    finding, view, file = table.column("finding"), table.column("view"), table.column("filename")
    folder = path.removesuffix("metadata.csv") + "images/"
    other = 0
    for row in table.rows:
        cells = row.cells
        if cells[finding] != FINDING or cells[view] not in VIEWS:
            other += 1
            continue
        attributes = intake.demographics(cells[age], cells[sex])
        if attributes is not None:
            attributes["view"] = cells[view]
            unit = intake.unit(cells[patient], "covid-")
            intake.samples.append(Sample(row.line, folder + cells[file], 2, unit, 1, attributes=attributes))
    if other == len(table.rows):
        seen = Counter(row.cells[finding] for row in table.rows).most_common(3)
        told = ", ".join(f"'{name}' ({count})" for name, count in seen)
        raise DatasetError(
            f"{path}: no finding '{FINDING}' in a frontal view; its findings are {told}: another release of the table, "
            "get the final one"
        )
    intake.dropped["not a frontal COVID-19 X-ray"] += other
    return intake


def _thinned(samples: list[Sample], wanted: Counter[int]) -> list[Sample]:
    """Whole patients in random order until each part has its number; ends with the patient that reaches it."""
    kept: list[Sample] = []
    for split, count in sorted(wanted.items()):
        own: dict[str, list[Sample]] = {}
        for sample in samples:
            if sample.split == split:
                own.setdefault(sample.unit, []).append(sample)
        patients = sorted(own)
        total = 0
        for i in np.asarray(generator(0, "chexcovid", split).permutation(len(patients))).tolist():
            if total >= OTHERS_PER_COVID * count:
                break
            kept += own[patients[i]]
            total += len(own[patients[i]])
    return kept


SOURCE = Chexcovid()
