"""Datasets that lie as environment/class/IMAGES, with known environments and classes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedhpc.data._files import FileTree, Folder, open_tree
from fedhpc.data._folders import extension, images_below, lacking_notes
from fedhpc.data._images import EXTENSIONS, decode
from fedhpc.data._zip import Merged
from fedhpc.data.schema import BadFile, shown
from fedhpc.data.sources.base import RawDataset, RawItem, ScanOptions, existing
from fedhpc.errors import DatasetError

_MOST_NAMED = 10


@dataclass(frozen=True)
class DomainFolders:
    """Finds the environments' folders anywhere below the raw folder, or in the archives that it holds.

    Folder names may differ in case, blanks, dashes and underscores. A missing environment is an error, since it would
    shift the others; what is not expected is left out and noted, and so is every count that differs from the
    original's.

    Attributes:
        environments: folder name -> images of the complete dataset, 0 where unknown; in index order.
        classes: folder names in index order; none: all folders found, of which `num_classes` are expected.
        archives: names of files that hold the dataset as it is downloaded.
        shape: height, width and channels after `prepare --size 224`, as the study trains.
    """

    name: str
    environments: Mapping[str, int]
    classes: tuple[str, ...] = ()
    num_classes: int = 0
    archives: tuple[str, ...] = ()
    embedded: bool = False
    shape: tuple[int, int, int] = (224, 224, 3)

    @property
    def layout(self) -> str:
        """One line for people: what the raw folder must hold."""
        folders = ", ".join(self.environments)
        archives = f", or {', '.join(self.archives)}" if self.archives else ""
        return f"{{{folders}}}/<class>/IMAGES in a folder or archive{archives}"

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """List the images, environment by environment and class by class."""
        raw = existing(raw, self)
        tree = self.open(raw)
        found = self.find(tree)
        if found is None:
            raise DatasetError(f"{shown(str(raw))}: {self._lacking(tree)}; expected {self.layout}")
        return self.read(tree, found, options.channels)

    def open(self, raw: Path) -> FileTree:
        """Open a folder or an archive; a folder with nothing but the known archives stands for what they hold."""
        if not raw.is_dir():
            return open_tree(raw)
        tree = Folder(raw)
        archives = [raw / name for name in self.archives if (raw / name).is_file()]
        if archives and self.find(tree) is None:
            return Merged([*map(open_tree, archives), tree])
        return tree

    def find(self, tree: FileTree) -> str | None:
        """Return the topmost folder that holds all environments, as a prefix of paths, or None."""
        wanted = {plain(name) for name in self.environments}
        children: dict[str, set[str]] = defaultdict(set)
        for folder in tree.listing.folders:
            parent, _, name = folder.rpartition("/")
            children[parent].add(plain(name))
        tops = [parent for parent, names in children.items() if wanted <= names]
        return min(tops, key=lambda parent: (parent.count("/"), parent)) if tops else None

    def read(
        self, tree: FileTree, top: str, channels: int | None, leave_out: frozenset[str] = frozenset()
    ) -> RawDataset:
        """Make the dataset from the folder that holds the environments.

        Args:
            tree: the files.
            top: from `find`.
            channels: of the decoded images; None is 3.
            leave_out: paths below `top` that are known to be duplicates.
        """
        images, notes = images_below(tree.listing, top)
        places = [(path, path[len(top) + 1 if top else 0 :].split("/")) for path in images]
        classes = self.classes or self._classes_of(places)
        environment_of, class_of = _index(self.environments), _index(classes)
        items, stray, skipped = [], Counter[str](), 0
        for path, parts in places:
            environment = environment_of.get(plain(parts[0])) if len(parts) > 2 else None
            label = class_of.get(plain(parts[1])) if environment is not None else None
            if environment is None or label is None:
                stray["/".join(parts[: 1 if environment is None else 2][: len(parts) - 1]) or "."] += 1
            elif "/".join(parts) in leave_out:
                skipped += 1
            else:
                items.append(RawItem(path, label, environment, key=path))
        items.sort(key=lambda item: (item.environment, item.label, item.path.split("/")))
        notes += [f"{skipped:,} known duplicates were left out"] if skipped else []
        return RawDataset(
            classes=tuple(classes),
            environments=tuple(self.environments),
            items=items,
            decode=lambda item: decode(tree.read(item.key), channels or 3),
            bad=tuple(b for b in tree.listing.bad if _concerns(b, top)),
            notes=(*tree.listing.notes, *notes, *_stray_notes(stray), *self.count_notes(items, classes)),
        )

    def count_notes(self, items: list[RawItem], classes: tuple[str, ...]) -> list[str]:
        """Say where the samples differ in number from the complete dataset, and which classes an environment lacks."""
        found = Counter(i.environment for i in items)
        notes = []
        if self.num_classes and len(classes) != self.num_classes:
            notes.append(f"{len(classes)} classes, the complete dataset has {self.num_classes}")
        for environment, (name, expected) in enumerate(self.environments.items()):
            if expected and found[environment] != expected:
                notes.append(f"{name}: {found[environment]:,} images, the complete dataset has {expected:,}")
        return [*notes, *lacking_notes(items, classes, tuple(self.environments))]

    def _classes_of(self, places: list[tuple[str, list[str]]]) -> tuple[str, ...]:
        known = {plain(name) for name in self.environments}
        return tuple(sorted({parts[1] for _, parts in places if len(parts) > 2 and plain(parts[0]) in known}))

    def _lacking(self, tree: FileTree) -> str:
        """What is missing, by the folder that comes closest."""
        seen = {plain(folder.rpartition("/")[2]) for folder in tree.listing.folders}
        missing = [name for name in self.environments if plain(name) not in seen]
        if len(missing) == len(self.environments):
            return f"not {self.name}"
        return f"no folder {', '.join(missing)} beside the others" if missing else "environments are not in one folder"


def plain(name: str) -> str:
    """Return a folder name without what copies of a dataset differ in."""
    return re.sub(r"[\s_-]+", "", name).casefold()


def _index(names: Mapping[str, int] | tuple[str, ...]) -> dict[str, int]:
    return {plain(name): i for i, name in enumerate(names)}


def _stray_notes(stray: Mapping[str, int]) -> list[str]:
    told = [f"{shown(folder)} ({count})" for folder, count in sorted(stray.items())]
    more = f" and {len(told) - _MOST_NAMED} more folders" if len(told) > _MOST_NAMED else ""
    return [f"images outside the expected folders were left out: {', '.join(told[:_MOST_NAMED])}{more}"] if told else []


def _concerns(entry: BadFile, top: str) -> bool:
    below = not top or entry.path.startswith(f"{top}/")
    return below and (extension(entry.path) in EXTENSIONS or "folder" in entry.reason)
