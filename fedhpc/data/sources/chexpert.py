"""CheXpert: 223,414 chest X-rays of 64,540 patients; here two classes, any finding or none (Irvin et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedhpc.data._chexpert import CLASSES, TABLES, chexpert_samples
from fedhpc.data._files import open_tree
from fedhpc.data._medical import image_reader, require_file
from fedhpc.data.sources.base import RawDataset, ScanOptions, existing


@dataclass(frozen=True)
class Chexpert:
    """Units are patients; frontal and lateral views are kept; rows without sex or age are left out."""

    name: str = "chexpert"
    embedded: bool = False
    layout: str = "a folder with train_cheXbert.csv (or train.csv) and CheXpert-v1.0/train/patientNNNNN/studyN/*.jpg"

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Read the table with CheXbert's labels, or else the one with the first labels."""
        raw = existing(raw, self)
        tree = open_tree(raw)
        path = require_file(tree, raw, self.name, *TABLES)
        intake = chexpert_samples(tree, path)
        if not path.endswith(TABLES[0]):
            intake.notes.append(f"{path}: labels of the first labeller, {TABLES[0]} is not there")
        return intake.dataset(tree.listing.files, image_reader(tree, options.channels), CLASSES, (self.name,))


SOURCE = Chexpert()
