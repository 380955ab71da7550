"""What tells one dataset from another of the same name: a digest of all that a training sees of it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from fedhpc.data import schema
from fedhpc.data.hdf5 import array_sum, open_hdf5
from fedhpc.data.shards import ShardStore
from fedhpc.data.stores import Store


def fingerprint(store: Store) -> str:
    """SHA-256 of the manifest's facts, of the table and of the checksums that the shards state for their pixels.

    Where the folder lies, when and by which version it was prepared and what was skipped do not enter. No pixels are
    read, except those of a dataset in memory.

    Raises:
        DatasetError: a shard cannot be read.
    """
    manifest, table = store.manifest, store.table
    facts: dict[str, Any] = {
        "classes": manifest.classes,
        "environments": manifest.environments,
        "shape": manifest.sample_shape,
        "pixel_max": manifest.pixel_max,
        "table": [array_sum([column]) for column in (table.labels, table.environment, table.split)],
        "pixels": _pixel_sums(store),
    }
    if table.attributes:  # clients may be made by them
        columns = {name: array_sum([column]) for name, column in table.attributes.items()}
        facts["attributes"] = {name: [columns[name], manifest.attributes[name].get("values")] for name in columns}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _pixel_sums(store: Store) -> list[str]:
    if not isinstance(store, ShardStore):
        return [array_sum([store.images(np.arange(store.num_samples))])]
    sums = []
    for entry in store.manifest.shards:
        with open_hdf5(store.root / entry.file) as file:
            sums.append(str(file[schema.IMAGES].attrs.get("sha256")))
    return sums
