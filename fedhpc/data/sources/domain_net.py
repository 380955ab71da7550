"""DomainNet: 345 classes as clip art, infographics, paintings, drawings, photos and sketches (Peng et al., 2019)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedhpc.data._domain_folders import DomainFolders
from fedhpc.data.schema import shown
from fedhpc.data.sources.base import RawDataset, ScanOptions, existing
from fedhpc.errors import DatasetError

DUPLICATES = "domain_net_duplicates.txt"
"""DomainBed's list of 9,431 images to leave out, one environment/class/file a line; looked for in the raw folder."""

_FOLDERS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
_CLEANED = (48129, 51605, 72266, 172500, 172947, 69128)


class DomainNet(DomainFolders):
    """The six archives or what they hold, without the known duplicates where their list lies beside them."""

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """List the images and leave out those that the list of duplicates names."""
        raw = existing(raw, self)
        tree = self.open(raw)
        top = self.find(tree)
        if top is None:
            return super().scan(raw, options)
        lists = [path for path in tree.listing.files if path.rpartition("/")[2] == DUPLICATES]
        if not lists:
            note = f"no {DUPLICATES} in the raw folder: duplicates were kept; `fedhpc fetch domain_net` gets the list"
            dataset = self.read(tree, top, options.channels)
            return replace(dataset, notes=(note, *dataset.notes))
        try:
            lines = tree.read(lists[0]).decode("utf-8").splitlines()
        except UnicodeDecodeError:
            raise DatasetError(f"{shown(str(raw / lists[0]))}: not a text file; get it again") from None
        return self.read(tree, top, options.channels, frozenset(line.strip() for line in lines))


SOURCE = DomainNet(
    name="domain_net",
    environments=dict(zip(_FOLDERS, _CLEANED, strict=True)),
    num_classes=345,
    archives=tuple(f"{folder}.zip" for folder in _FOLDERS),
)
