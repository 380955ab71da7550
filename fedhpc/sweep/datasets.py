"""The datasets of a sweep: sources by name, and folders of one's own images under any name."""

from __future__ import annotations

from fedhpc import registry
from fedhpc.data.shards import ShardStore
from fedhpc.data.stores import Store, open_store, require_dataset
from fedhpc.errors import ConfigError, DataRequestError
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
