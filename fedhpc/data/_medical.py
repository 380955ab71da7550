"""From the rows of a medical table to a dataset: files, duplicates, demographics, units and their split."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import numpy as np

from fedhpc.data._demographics import SEXES, parse_age, parse_sex
from fedhpc.data._files import FileTree
from fedhpc.data._images import EXTENSIONS, decode
from fedhpc.data._tables import Table, is_missing
from fedhpc.data._units import three_parts
from fedhpc.data.ages import bracket_counts
from fedhpc.data.schema import UNASSIGNED, BadFile, shown
from fedhpc.data.sources.base import RawDataset, RawItem
from fedhpc.errors import DatasetError

Attributes = dict[str, str | float | None]

_MAX_FOLDERS_LEFT_OUT = 2  # a table may name folders above the one that is given


@dataclass(slots=True)
class Sample:
    """One row on its way to a sample.

    Attributes:
        line: line of the table; `table:line` where several tables are read.
        path: of the image, as the table has it.
        label: class index.
        unit: what is never divided (patient, lesion); empty for the image itself.
        environment: environment index.
        split: split code, or UNASSIGNED for a split by units.
        attributes: further attributes.
    """

    line: int | str
    path: str
    label: int
    unit: str = ""
    environment: int = 0
    split: int = UNASSIGNED
    attributes: Attributes = field(default_factory=dict)


@dataclass
class Intake:
    """Collects samples and accounts for the rows that do not become one.

    Attributes:
        table: name of the table, for messages.
        drop_unknown: leave rows out whose age or sex is not known (as the published datasets do) or keep them.
        samples: accepted so far.
        bad: rows that are wrong.
        dropped: reason -> rows left out by policy.
        unknown: reason -> values that are not known in rows that were kept.
        notes: remarks.
    """

    table: str
    drop_unknown: bool = True
    samples: list[Sample] = field(default_factory=list)
    bad: list[BadFile] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def absorb(self, other: Intake) -> None:
        """Take over everything of another table; lines keep their table's name."""
        for sample in other.samples:
            sample.line = f"{other.table}:{sample.line}"
        self.samples += other.samples
        self.bad += other.bad
        self.dropped += other.dropped
        self.unknown += other.unknown
        self.notes += other.notes

    @classmethod
    def of(cls, table: Table, drop_unknown: bool = True) -> Intake:
        """Begin with what reading the table had to say."""
        return cls(table.name, drop_unknown, bad=list(table.bad), notes=list(table.notes))

    def refuse(self, line: int | str, reason: str) -> None:
        """Note a row that is wrong."""
        self.bad.append(BadFile(line if isinstance(line, str) else f"{self.table}:{line}", reason))

    def unit(self, text: str, prefix: str = "") -> str:
        """Name of a row's unit; empty, and counted, where the table does not tell it."""
        if is_missing(text):
            self.unknown["unit (patient, lesion) not known, the image is its own"] += 1
            return ""
        return prefix + text

    def demographics(
        self, age: str | None, sex: str | None, coding: Mapping[str, str] | None = None
    ) -> Attributes | None:
        """Age and sex of a row (None: the table has no such column), or None if the row is to be left out."""
        found: Attributes = {}
        reasons = []
        if sex is not None:
            found["sex"] = parse_sex(sex, coding)
            if found["sex"] is None:
                reasons.append("sex not known")
        if age is not None:
            parsed = parse_age(age)
            found["age"] = parsed.years
            if parsed.years is None:
                reasons.append(f"age not known: {parsed.reason}")
        if reasons and self.drop_unknown:
            self.dropped[reasons[0]] += 1
            return None
        self.unknown.update(reasons)
        return found

    def dataset(
        self,
        files: Sequence[str],
        decode: Callable[[RawItem], np.ndarray],
        classes: Sequence[str],
        environments: Sequence[str],
        rest_fraction: float = 0.2,
        by_name: bool = False,
    ) -> RawDataset:
        """Find the files, drop duplicates, split by units.

        Args:
            files: paths (or other keys) of all images.
            decode: item -> pixels; the item's `key` is one of `files`.
            classes: class names.
            environments: environment names.
            rest_fraction: share of the units for validation and test together.
            by_name: find images by their file name wherever they lie.

        Raises:
            DatasetError: no row is left.
        """
        kept = self._located(self._without_duplicates(), Finder(files, by_name))
        self._assign(kept, rest_fraction)
        if not kept and not self.bad:
            raise DatasetError(f"{self.table}: no usable samples in it ({'; '.join(self.told()) or 'no rows'})")
        names = sorted({name for sample, _ in kept for name in sample.attributes})
        attributes = {name: _categories(name, [sample for sample, _ in kept]) for name in names}
        return RawDataset(
            classes=tuple(classes),
            environments=tuple(environments),
            items=[
                RawItem(path, sample.label, sample.environment, sample.split, sample.attributes, key=path)
                for sample, path in kept
            ],
            decode=decode,
            attributes=attributes,
            bad=tuple(self.bad),
            notes=(*self.notes, *self.told(), *(f"{self.table}: {line}" for line in bracket_counts(_ages(kept)))),
            fit="crop",
        )

    def _without_duplicates(self) -> list[Sample]:
        """Keep the first of equal rows; rows that contradict each other are bad, all of them."""
        rows: dict[str, list[Sample]] = defaultdict(list)
        for sample in self.samples:
            rows[sample.path].append(sample)
        kept = []
        for same in rows.values():
            first = same[0]
            differ = next((what for other in same[1:] if (what := _differ(first, other))), "")
            if differ:
                lines = ", ".join(str(s.line) for s in same)
                self.refuse(first.line, f"{shown(first.path)} has other {differ} in lines {lines}")
                continue
            if len(same) > 1:
                self.dropped["the same row again"] += len(same) - 1
            kept.append(first)
        return kept

    def _located(self, samples: Sequence[Sample], finder: Finder) -> list[tuple[Sample, str]]:
        """Samples whose image is there, with its path."""
        kept: list[tuple[Sample, str]] = []
        owner: dict[str, int | str] = {}
        for sample in samples:
            path, reason = finder.find(sample.path)
            if path is None:
                self.refuse(sample.line, f"{shown(sample.path)}: {reason}")
            elif path in owner:
                self.refuse(sample.line, f"{shown(sample.path)} is the same file as line {owner[path]}'s")
            else:
                owner[path] = sample.line
                kept.append((sample, path))
        return kept

    def _assign(self, kept: Sequence[tuple[Sample, str]], rest_fraction: float) -> None:
        """Give every sample its split, and its unit as an attribute."""
        units = [sample.unit or path for sample, path in kept]
        if kept and all(sample.split == UNASSIGNED for sample, _ in kept):
            for (sample, _), code in zip(kept, three_parts(units, rest_fraction), strict=True):
                sample.split = int(code)
        parts = {(unit, sample.split) for unit, (sample, _) in zip(units, kept, strict=True)}
        several = sum(count > 1 for count in Counter(unit for unit, _ in parts).values())
        if several:
            self.notes.append(f"{self.table}: {several} units (patients) have rows in several splits")
        if any(sample.unit for sample, _ in kept):
            for sample, _ in kept:
                sample.attributes["unit"] = sample.unit or None

    def told(self) -> list[str]:
        """What was left out or is not known, with counts."""
        dropped = [f"{self.table}: {n} rows left out: {reason}" for reason, n in sorted(self.dropped.items()) if n]
        return dropped + [f"{self.table}: {n} rows kept: {reason}" for reason, n in sorted(self.unknown.items()) if n]


def _differ(a: Sample, b: Sample) -> str:
    """In what two rows of one image contradict each other; empty if they do not."""
    if (a.label, a.unit, a.attributes) != (b.label, b.unit, b.attributes):
        return "labels or demographics"
    return "splits or sites" if (a.split, a.environment) != (b.split, b.environment) else ""


class Finder:
    """Finds images by a table's paths: as written, in another letter case, without the first folders, or by name."""

    def __init__(self, files: Sequence[str], by_name: bool) -> None:
        self._files = set(files)
        self._folded = {path.casefold(): path for path in reversed(files)}
        self._names: dict[str, str] = {}
        if by_name:
            images = (path for path in reversed(files) if os.path.splitext(path)[1].lower() in EXTENSIONS)
            self._names = {PurePosixPath(path).name.casefold(): path for path in images}

    def find(self, path: str) -> tuple[str | None, str]:
        """Path of the file, or None and the reason."""
        if path in self._files:
            return path, ""
        tidy = path.replace("\\", "/")
        parts = [part for part in tidy.split("/") if part not in ("", ".")]
        if tidy.startswith("/") or ".." in parts or (parts and parts[0].endswith(":")):
            return None, "leads out of the data folder, refused"
        for start in range(min(len(parts), _MAX_FOLDERS_LEFT_OUT + 1)):
            candidate = "/".join(parts[start:]).casefold()
            if candidate in self._folded:
                return self._folded[candidate], ""
        if parts and parts[-1].casefold() in self._names:
            return self._names[parts[-1].casefold()], ""
        return None, "no such file"


def _ages(kept: Sequence[tuple[Sample, str]]) -> list[float | None]:
    found = [sample.attributes.get("age") for sample, _ in kept]
    return [age if isinstance(age, float) else None for age in found]


def _categories(name: str, samples: Sequence[Sample]) -> tuple[str, ...] | None:
    """Categories of an attribute, or None for numbers."""
    if name == "sex":
        return SEXES
    values = {sample.attributes.get(name) for sample in samples} - {None}
    if all(isinstance(value, (int, float)) for value in values):
        return None
    return tuple(sorted(str(value) for value in values))


def image_reader(tree: FileTree, channels: int | None) -> Callable[[RawItem], np.ndarray]:
    """A function that reads an item's image from a tree; `channels` None is 3."""
    return lambda item: decode(tree.read(item.key), channels or 3)


def find_file(tree: FileTree, *names: str) -> str | None:
    """Topmost file of one of these names, in any letter case; the first name that is there wins."""
    for name in names:
        found = [path for path in tree.listing.files if PurePosixPath(path).name.casefold() == name.casefold()]
        if found:
            return min(found, key=lambda path: (path.count("/"), path))
    return None


def require_file(tree: FileTree, raw: object, source: str, *names: str) -> str:
    """See `find_file`.

    Raises:
        DatasetError: there is none; names what was looked for.
    """
    found = find_file(tree, *names)
    if found is None:
        raise DatasetError(f"{shown(str(raw))}: no {' or '.join(names)} in it, so not {source}'s raw files")
    return found
