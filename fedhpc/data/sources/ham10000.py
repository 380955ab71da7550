"""HAM10000: 10,015 dermatoscopic images of pigmented lesions in seven classes (Tschandl et al., 2018)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fedhpc.data._files import open_tree
from fedhpc.data._medical import Intake, Sample, image_reader, require_file
from fedhpc.data._tables import Table, read_table
from fedhpc.data.sources.base import RawDataset, ScanOptions, existing

CLASSES = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")
TABLES = ("HAM10000_metadata.csv", "HAM10000_metadata")
_SITE = "dataset"


@dataclass(frozen=True)
class Ham10000:
    """Units are lesions; rows without age or sex are left out; environments are the sites, where the table has them."""

    name: str = "ham10000"
    embedded: bool = False
    layout: str = "a folder with HAM10000_metadata.csv and the images ISIC_*.jpg, in any folders below it"

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Read the table; of several copies the one that names the sites."""
        raw = existing(raw, self)
        tree = open_tree(raw)
        first = require_file(tree, raw, self.name, *TABLES)
        folder = os.path.dirname(first)
        names = [path for path in tree.listing.files if os.path.dirname(path) == folder]
        copies = [path for path in names if os.path.basename(path) in TABLES]
        tables = [read_table(tree.read(path), path) for path in copies or [first]]
        table = next((t for t in tables if t.has(_SITE)), tables[0])
        site = table.optional(_SITE)
        sites = sorted({row.cells[site] for row in table.rows}) if site is not None else [self.name]
        intake = self._samples(table, sites, site)
        return intake.dataset(tree.listing.files, image_reader(tree, options.channels), CLASSES, sites, by_name=True)

    def _samples(self, table: Table, sites: list[str], site: int | None) -> Intake:
        intake = Intake.of(table)
        lesion, image, dx = table.column("lesion_id"), table.column("image_id"), table.column("dx")
        age, sex, place = table.column("age"), table.column("sex"), table.optional("localization")
        for row in table.rows:
            cells = row.cells
            label = cells[dx].casefold()
            if label not in CLASSES:
                intake.refuse(row.line, f"dx is '{cells[dx]}', expected {', '.join(CLASSES)}")
                continue
            attributes = intake.demographics(cells[age], cells[sex])
            if attributes is None:
                continue
            if place is not None:
                attributes["localization"] = cells[place] or None
            name = os.path.splitext(cells[image])[0] + ".jpg"
            where = sites.index(cells[site]) if site is not None else 0
            unit = intake.unit(cells[lesion])
            intake.samples.append(Sample(row.line, name, CLASSES.index(label), unit, where, attributes=attributes))
        return intake


SOURCE = Ham10000()
