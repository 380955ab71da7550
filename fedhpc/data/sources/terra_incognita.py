"""TerraIncognita: ten kinds of camera trap pictures from four places (Beery et al., 2018)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedhpc.data._domain_folders import DomainFolders
from fedhpc.data._files import FileTree
from fedhpc.data._images import decode
from fedhpc.data.schema import BadFile, shown
from fedhpc.data.sources.base import BadSampleError, RawDataset, RawItem, ScanOptions, existing
from fedhpc.errors import DatasetError

_LOCATIONS = ("100", "38", "43", "46")
_LISTS = ("cis_test", "cis_val", "train", "trans_test", "trans_val")


class TerraIncognita(DomainFolders):
    """Folders by location and class, or the camera traps' images with their five lists of annotations.

    From the lists: images of the four locations, once for each of the ten categories that annotates them.
    """

    @property
    def layout(self) -> str:
        """One line for people: what the raw folder must hold."""
        return f"{super().layout}, or the images with the annotation lists {{{','.join(_LISTS)}}}*.json"

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Find out which of the two layouts it is, and list the images."""
        raw = existing(raw, self)
        tree = self.open(raw)
        if self.find(tree) is not None:
            return super().scan(raw, options)
        lists = _annotation_lists(tree)
        if not lists:
            return super().scan(raw, options)
        lacking = [name for name in _LISTS if name not in lists]
        if lacking:
            raise DatasetError(f"{shown(str(raw))}: no {', '.join(lacking)} among the lists; expected {self.layout}")
        return self._from_lists(raw, tree, lists, options.channels or 3)

    def _from_lists(self, raw: Path, tree: FileTree, lists: Mapping[str, str], channels: int) -> RawDataset:
        where = {path.rpartition("/")[2]: path for path in tree.listing.files}
        class_of = {name: label for label, name in enumerate(self.classes)}
        places: dict[tuple[int, int, str], None] = {}
        for path in lists.values():
            for file, location, category in _annotated(raw, tree, path):
                if location in _LOCATIONS and category in class_of:
                    places[_LOCATIONS.index(location), class_of[category], file] = None
        items, bad = [], []
        for environment, label, file in sorted(places):
            name = f"location_{_LOCATIONS[environment]}/{self.classes[label]}/{file}"
            if file in where:
                items.append(RawItem(name, label, environment, key=where[file]))
            else:
                bad.append(BadFile(name, "listed, but there is no such image"))
        notes = (f"read from the annotation lists {', '.join(sorted(lists.values()))}",)
        return RawDataset(
            classes=self.classes,
            environments=tuple(self.environments),
            items=items,
            decode=lambda item: decode(tree.read(item.key), channels),
            bad=(*tree.listing.bad, *bad),
            notes=(*notes, *tree.listing.notes, *self.count_notes(items, self.classes)),
        )


def _annotation_lists(tree: FileTree) -> dict[str, str]:
    """List name -> path; files are named as cis_test_annotations.json or cis_test.json."""
    found = {}
    for path in tree.listing.files:
        stem, dot, end = path.rpartition("/")[2].partition(".")
        name = stem.removesuffix("_annotations")
        if dot and end == "json" and name in _LISTS:
            found[name] = path
    return found


def _annotated(raw: Path, tree: FileTree, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield (file name, location, category name) of every annotation."""
    try:
        content: dict[str, Any] = json.loads(tree.read(path))
        categories = {entry["id"]: str(entry["name"]) for entry in content["categories"]}
        by_image: dict[Any, list[str]] = defaultdict(list)
        for entry in content["annotations"]:
            by_image[entry["image_id"]].append(categories[entry["category_id"]])
        for image in content["images"]:
            for category in by_image[image["id"]]:
                yield str(image["file_name"]).rpartition("/")[2], str(image["location"]), category
    except (ValueError, KeyError, TypeError, BadSampleError) as error:
        raise DatasetError(f"{shown(str(raw / path))}: not a list of annotations ({error!r}); get it again") from None


SOURCE = TerraIncognita(
    name="terra_incognita",
    environments={f"location_{location}": 0 for location in _LOCATIONS},
    classes=("bird", "bobcat", "cat", "coyote", "dog", "empty", "opossum", "rabbit", "raccoon", "squirrel"),
    archives=("eccv_18_annotations.tar.gz", "eccv_18_all_images_sm.tar.gz"),
)
