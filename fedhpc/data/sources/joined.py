"""Several prepared datasets as one, for runs whose clients belong to one of them each.

The raw path is a YAML file with the keys of `JoinedSpec`. Classes stand side by side (`ham10000/nv`), environments are
the datasets, units and groups are kept, other attributes are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from fedhpc.config import Section, from_tree, read_yaml
from fedhpc.data._units import three_parts
from fedhpc.data.schema import UNASSIGNED, shown
from fedhpc.data.shards import ShardStore
from fedhpc.data.sources.base import RawDataset, RawItem, ScanOptions, existing
from fedhpc.errors import ConfigError, DataRequestError

_REST = 0.2
"""Share of the units for validation and test in a dataset that stores no split."""


@dataclass(frozen=True, kw_only=True)
class JoinedSpec(Section):
    """Which prepared folders are joined."""

    folders: Annotated[tuple[str, ...], "prepared datasets of one image size, relative to this file"]
    groups: Annotated[tuple[str, ...], "of each, the attribute whose values are its groups; empty: one group"] = ()
    edges: Annotated[tuple[float, ...], "where numbers (ages) are cut into groups"] = (60.0,)
    same_units: Annotated[tuple[str, ...], "folders (last parts) that name their units alike, and share some"] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [Path(folder).name for folder in self.folders]
        if len(names) < 2 or len(set(names)) < len(names):
            raise ConfigError(f"folders must be two or more of different names, got {list(self.folders)}")
        if self.groups and len(self.groups) != len(names):
            raise ConfigError(f"groups names {len(self.groups)} attributes for {len(names)} folders")
        strange = [name for name in self.same_units if name not in names]
        if strange or len(self.same_units) == 1:
            raise ConfigError(f"same_units must name two or more of {', '.join(names)}, got {list(self.same_units)}")


@dataclass(frozen=True)
class Joined:
    """Prepared datasets side by side."""

    name: str = "joined"
    embedded: bool = False
    layout: str = "a YAML file with `folders`, the prepared datasets"

    def scan(self, raw: Path | None, options: ScanOptions) -> RawDataset:
        """Read the tables of the folders; pixels are read when they are written."""
        path = existing(raw, self)
        try:
            spec = from_tree(JoinedSpec, read_yaml(str(path)), str(path))
        except ConfigError as error:
            raise DataRequestError(f"{error}") from None
        stores = [ShardStore.open(path.parent / folder) for folder in spec.folders]
        names = [Path(folder).name for folder in spec.folders]
        kinds = {(store.manifest.sample_shape, store.manifest.pixel_max) for store in stores}
        if len(kinds) > 1:
            told = ", ".join(f"{n} {s.manifest.sample_shape}" for n, s in zip(names, stores, strict=True))
            raise DataRequestError(
                f"{shown(str(path))}: images differ in shape or range: {told}; prepare with one --size"
            )
        items: list[RawItem] = []
        classes: list[str] = []
        for number, (name, store) in enumerate(zip(names, stores, strict=True)):
            group = spec.groups[number] if spec.groups else None
            place = name if name not in spec.same_units else "+".join(spec.same_units)
            items += _items(store, name, number, len(classes), _groups(store, name, group, spec.edges), place)
            classes += [f"{name}/{label}" for label in store.manifest.classes]
        units = sorted({str(item.attributes["unit"]) for item in items})
        groups = sorted({str(item.attributes["group"]) for item in items} - {"None"})
        return RawDataset(
            tuple(classes),
            tuple(names),
            items,
            lambda item: stores[item.key[0]].images(np.array([item.key[1]]))[0],
            pixel_max=stores[0].manifest.pixel_max,
            attributes={"unit": tuple(units), "group": tuple(groups)},
        )


def _items(
    store: ShardStore, name: str, number: int, offset: int, groups: list[str | None], place: str
) -> list[RawItem]:
    """One folder's samples; without units each sample is its own, and `place` is where units are told apart by name."""
    table = store.table
    codes = table.attributes.get("unit", np.full(table.num_samples, -1))
    texts = store.manifest.attributes.get("unit", {}).get("values", ())
    units = [f"{place}/{texts[c]}" if c >= 0 else f"{name}/sample {i}" for i, c in enumerate(codes.tolist())]
    split = table.split
    if (split == UNASSIGNED).all():
        split = three_parts(units, _REST)
    return [
        RawItem(
            f"{name}/{i}",
            offset + int(table.labels[i]),
            number,
            int(split[i]),
            {"unit": units[i], "group": groups[i]},
            key=(number, i),
        )
        for i in range(table.num_samples)
    ]


def _groups(store: ShardStore, name: str, attribute: str | None, edges: tuple[float, ...]) -> list[str | None]:
    """Group of every sample of a folder: the number of its category or bracket."""
    if attribute is None:
        return ["0"] * store.table.num_samples
    if attribute not in store.table.attributes:
        raise DataRequestError(
            f"{name}: no attribute '{attribute}'; it has {', '.join(store.table.attributes) or 'none'}"
        )
    values = store.table.attributes[attribute]
    if np.issubdtype(values.dtype, np.floating):
        codes = np.where(np.isnan(values), -1, np.searchsorted(edges, values, side="right"))
    else:
        codes = values
    return [str(code) if code >= 0 else None for code in codes.tolist()]


SOURCE = Joined()
