"""The datasets of a sweep: sources by name, and folders of one's own images under any name."""

from __future__ import annotations

import numpy as np

from fedhpc import registry
from fedhpc.data.shards import ShardStore
from fedhpc.data.stores import Store, open_store, require_dataset
from fedhpc.errors import ConfigError, DataRequestError
from fedhpc.sweep.estimate import DatasetFacts
from fedhpc.sweep.settings import SOURCES

_OWN = "image_folder"


def open_dataset(name: str, root: str | None) -> Store:
    """Open one dataset of a sweep on one rank.

    Args:
        name: of its source; or any, for a folder that was prepared as `image_folder`.
        root: its folder; None: embedded.

    Raises:
        ConfigError: it has no folder but needs one.
        DataRequestError: the folder is missing or holds another dataset.
        DatasetError: it is damaged.
    """
    known, key = registry.names(SOURCES), f"sweep.datasets.{name}"
    if root is None and not registry.load(SOURCES, name).SOURCE.embedded:
        raise ConfigError(
            f"{key}: is not embedded; make a folder of it with `fedhpc prepare {name} --raw RAW --out "
            f"DIR` and give that"
        )
    if name in known:
        return open_store(name, root, key)
    require_dataset(name, root or "", key)
    store = ShardStore.open(root or "")
    if store.manifest.name != _OWN:
        raise DataRequestError(
            f"{key} {root}: holds the dataset '{store.manifest.name}'; call it so (names of one's own are for folders "
            f"that were prepared as {_OWN})"
        )
    return store


def facts_of(store: Store) -> DatasetFacts:
    """What a plan needs to know about an opened dataset.

    Raises:
        ConfigError: an environment has no samples.
    """
    manifest = store.manifest
    sizes = np.bincount(store.table.environment, minlength=len(manifest.environments))
    if not sizes.all():
        empty = manifest.environments[int(np.argmin(sizes))]
        raise ConfigError(f"sweep.datasets: environment {empty} of {manifest.name} has no samples; prepare it again")
    return DatasetFacts(
        manifest.environments, tuple(int(n) for n in sizes), manifest.height, manifest.width, manifest.channels
    )


def published_facts(name: str) -> DatasetFacts | None:
    """What a plan needs to know about a dataset of the study, as published; None about any other.

    With it trials can be counted before the data are there.
    """
    source = registry.load(SOURCES, name).SOURCE if name in registry.names(SOURCES) else None
    environments, shape = getattr(source, "environments", None), getattr(source, "shape", None)
    if not environments or not shape:
        return None
    return DatasetFacts(tuple(environments), tuple(environments.values()), *shape)
