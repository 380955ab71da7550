"""Labels from folder names: `class/image`, `environment/class/image` and `split/class/image`."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from fedhpc.data._files import FileTree, Listing
from fedhpc.data._images import EXTENSIONS, decode
from fedhpc.data.schema import UNASSIGNED, BadFile, shown, split_code
from fedhpc.data.sources.base import RawDataset, RawItem

LEVELS = {"class": ("class",), "environment": ("environment", "class"), "split": ("split", "class")}
"""Layout -> what the folders mean, from the top down."""
_MOST_NAMED = 10


def read_folders(tree: FileTree, layout: str, top: str = "", channels: int | None = None, name: str = "") -> RawDataset:
    """Find the images of a tree whose folders carry the labels; deeper folders are walked into.

    Args:
        tree: the files.
        layout: a key of LEVELS.
        top: folder that the layout starts in; empty for the tree itself.
        channels: of the decoded images; None is 3.
        name: the only environment's name, where the layout has none.

    Returns:
        Samples in code point order of their paths; class and environment names in code point order.
    """
    levels = LEVELS[layout]
    images, notes = images_below(tree.listing, top)
    placed, bad = _places(images, levels, top)
    folders = _folders_below(tree.listing, top)
    environments, stray = _environments(folders, placed) if "environment" in levels else ([name], [])
    classes = _names((f for f in folders if f[0] not in stray), levels.index("class"))
    class_index, environment_index = _index(classes), _index(environments)
    items = [
        RawItem(
            path=path,
            label=class_index[place["class"]],
            environment=environment_index[place.get("environment", name)],
            split=_split(place),
            key=path,
        )
        for path, place in placed
    ]
    notes += [f"folders without images are no environments and were left out: {_listed(stray)}"] if stray else []
    notes += lacking_notes(items, classes, environments) if "environment" in levels else []
    return RawDataset(
        classes=tuple(classes),
        environments=tuple(environments),
        items=items,
        decode=lambda item: decode(tree.read(item.key), channels or 3),
        bad=(*bad, *(entry for entry in tree.listing.bad if _concerns(entry, top))),
        notes=(*tree.listing.notes, *notes, *_case_notes(classes), *_case_notes(environments)),
    )


def _environments(
    folders: Iterable[list[str]], placed: Iterable[tuple[str, dict[str, str]]]
) -> tuple[list[str], list[str]]:
    """Return the top folders that hold images, and the others: one that counted would shift those after it."""
    found = {place["environment"] for _, place in placed}
    return sorted(found), sorted({parts[0] for parts in folders} - found)


def images_below(listing: Listing, top: str = "") -> tuple[list[str], list[str]]:
    """Return the files below a folder that are images by name, and a note about the others."""
    prefix = f"{top}/" if top else ""
    below = [path for path in listing.files if path.startswith(prefix)]
    images = [path for path in below if extension(path) in EXTENSIONS]
    others = Counter(extension(path) or "no extension" for path in below if extension(path) not in EXTENSIONS)
    if not others:
        return images, []
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(others.items()))
    return images, [f"files that are not images by name were left alone: {kinds}"]


def lacking_notes(items: Iterable[RawItem], classes: Sequence[str], environments: Sequence[str]) -> list[str]:
    """Say which classes each environment has no image of."""
    pairs = {(item.environment, item.label) for item in items}
    notes = []
    for environment, name in enumerate(environments):
        lacking = [c for label, c in enumerate(classes) if (environment, label) not in pairs]
        notes += [f"{shown(name)}: no image of {_listed(lacking)}"] if lacking else []
    return notes


def extension(path: str) -> str:
    """Return the extension of a path in lower case, with its dot."""
    return os.path.splitext(path)[1].lower()


def _places(
    images: Iterable[str], levels: tuple[str, ...], top: str
) -> tuple[list[tuple[str, dict[str, str]]], list[BadFile]]:
    """Return each image with what its folders say (level -> name), and those that lie too high up."""
    prefix = len(top) + 1 if top else 0
    placed, bad = [], []
    for path in images:
        parts = path[prefix:].split("/")
        if len(parts) > len(levels):
            placed.append((path, dict(zip(levels, parts, strict=False))))
        else:
            bad.append(BadFile(path, f"lies outside the {'/'.join(levels)} folders"))
    return placed, bad


def _folders_below(listing: Listing, top: str) -> list[list[str]]:
    """Return the folders below one, each as its path's parts."""
    prefix = f"{top}/" if top else ""
    return [folder[len(prefix) :].split("/") for folder in listing.folders if folder.startswith(prefix)]


def _names(folders: Iterable[list[str]], depth: int) -> list[str]:
    return sorted({parts[depth] for parts in folders if len(parts) > depth})


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(map(shown, names[:_MOST_NAMED]))}{more}"


def _split(place: dict[str, str]) -> int:
    code = split_code(place["split"]) if "split" in place else None
    return UNASSIGNED if code is None else code


def _index(names: Iterable[str]) -> dict[str, int]:
    return {name: i for i, name in enumerate(names)}


def _concerns(entry: BadFile, top: str) -> bool:
    below = not top or entry.path.startswith(f"{top}/")
    return below and (extension(entry.path) in EXTENSIONS or "folder" in entry.reason)


def _case_notes(names: Iterable[str]) -> list[str]:
    alike: dict[str, list[str]] = defaultdict(list)
    for name in names:
        alike[name.casefold()].append(shown(name))
    return [
        f"folders that differ only in letter case are kept apart here, but are one on some systems: {', '.join(group)}"
        for group in alike.values()
        if len(group) > 1
    ]
