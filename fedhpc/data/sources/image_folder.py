"""Any folder (or archive) of images whose folder names are the labels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from fedhpc.data._files import Listing, open_tree
from fedhpc.data._folders import images_below, read_folders
from fedhpc.data.schema import shown, split_code
from fedhpc.data.sources.base import RawDataset, ScanOptions, existing
from fedhpc.errors import DatasetError


@dataclass(frozen=True)
class ImageFolder:
    """Class folders, environment folders with class folders in them, or train/test folders with class folders."""

    name: str = "image_folder"
    embedded: bool = False
    layout: str = "a folder, .tar(.gz) or .zip with class/IMAGES, environment/class/IMAGES or train|test/class/IMAGES"

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """List the images; with layout `auto` the depth of the folders decides, and a note says how they were read."""
        raw = existing(raw, self)
        tree = open_tree(raw)
        images, _ = images_below(tree.listing)
        if not images and not tree.listing.bad:
            raise DatasetError(f"{shown(str(raw))}: no image files in it; expected {self.layout}")
        top, layout = "", options.layout
        if layout == "auto":
            top = _wrapper(images)
            layout = _detect(images, top)
        dataset = read_folders(tree, layout, top, options.channels, name=raw.name)
        return replace(dataset, notes=(_told(layout, top, dataset, tree.listing), *dataset.notes))


def _wrapper(images: list[str]) -> str:
    """Return the one top folder that only wraps environments, as archives often have it, or nothing."""
    tops = {path.split("/")[0] for path in images}
    deep = all(path.count("/") >= 3 for path in images)
    return tops.pop() if len(tops) == 1 and deep else ""


def _detect(images: list[str], top: str) -> str:
    prefix = len(top) + 1 if top else 0
    depth = Counter(path[prefix:].count("/") for path in images)
    tops = {path[prefix:].split("/")[0] for path in images}
    if depth[0] or depth[1]:  # images straight in a top folder: it is a class
        return "class"
    return "split" if all(split_code(name) is not None for name in tops) else "environment"


def _told(layout: str, top: str, dataset: RawDataset, listing: Listing) -> str:
    where = f" below {shown(top)}" if top else ""
    counts = f"{len(dataset.classes)} classes" + (
        f", {len(dataset.environments)} environments" if layout == "environment" else ""
    )
    return f"folders read as {layout} folders{where}: {counts}; the option layout reads them otherwise"


SOURCE = ImageFolder()
