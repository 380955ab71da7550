"""The datasets of a sweep: sources by name, and folders of one's own images under any name."""

from __future__ import annotations

from fedhpc import registry
from fedhpc.data.shards import ShardStore
from fedhpc.data.stores import Store, open_store
from fedhpc.errors import ConfigError, DatasetError
from fedhpc.sweep.settings import SOURCES

_OWN = "image_folder"


def open_dataset(name: str, root: str | None) -> Store:
    """Open one dataset of a sweep on one rank.

    Args:
        name: of its source; or any, for a folder that was prepared as `image_folder`.
        root: its folder; None: embedded.

    Raises:
        ConfigError: it has no folder but needs one.
        DatasetError: the folder is missing, damaged or holds another dataset.
    """
    known = registry.names(SOURCES)
    if root is None and not registry.load(SOURCES, name).SOURCE.embedded:
        raise ConfigError(
            f"sweep.datasets.{name}: is not embedded; make a folder of it with `fedhpc prepare {name} --raw RAW --out "
            f"DIR` and give that"
        )
    if name in known:
        return open_store(name, root)
    store = ShardStore.open(root or "")
    if store.manifest.name != _OWN:
        raise DatasetError(
            f"{root}: holds the dataset '{store.manifest.name}'; call it so (names of one's own are for folders that "
            f"were prepared as {_OWN})"
        )
    return store
