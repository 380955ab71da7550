"""Fitzpatrick17k: clinical images of skin conditions with Fitzpatrick skin types (Groh et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedhpc.data._files import open_tree
from fedhpc.data._medical import Intake, Sample, image_reader, require_file
from fedhpc.data._tables import read_table
from fedhpc.data.sources.base import RawDataset, ScanOptions, existing

CLASSES = ("benign", "malignant", "non-neoplastic")
TYPES = ("1", "2", "3", "4", "5", "6")


@dataclass(frozen=True)
class Fitzpatrick17k:
    """Classes are those of the column three_partition_label; rows without a skin type (-1) are left out.

    Attributes of the samples: `skin_type` (1 to 6) and `skin_binary` (`I-III`, `IV-VI`).
    """

    name: str = "fitzpatrick17k"
    embedded: bool = False
    layout: str = "a folder with fitzpatrick17k.csv and images/<md5hash>.jpg"

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Read the table; images that were never downloaded are listed as bad files."""
        raw = existing(raw, self)
        tree = open_tree(raw)
        path = require_file(tree, raw, self.name, "fitzpatrick17k.csv")
        table = read_table(tree.read(path), path)
        intake = Intake.of(table)
        name, label = table.column("md5hash"), table.column("three_partition_label")
        scale = table.column("fitzpatrick_scale", "fitzpatrick")
        for row in table.rows:
            cells = row.cells
            kind = cells[label].casefold()
            skin = cells[scale].removesuffix(".0")
            if kind not in CLASSES:
                intake.refuse(row.line, f"three_partition_label is '{cells[label]}', expected {', '.join(CLASSES)}")
            elif skin in ("-1", ""):
                intake.dropped["skin type not known"] += 1
            elif skin not in TYPES:
                intake.refuse(row.line, f"fitzpatrick_scale is '{cells[scale]}', expected -1 or 1 to 6")
            else:
                half = "I-III" if int(skin) <= 3 else "IV-VI"
                attributes = {"skin_type": skin, "skin_binary": half}
                found = Sample(row.line, f"{cells[name]}.jpg", CLASSES.index(kind), attributes={**attributes})
                intake.samples.append(found)
        return intake.dataset(
            tree.listing.files, image_reader(tree, options.channels), CLASSES, (self.name,), by_name=True
        )


SOURCE = Fitzpatrick17k()
