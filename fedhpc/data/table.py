"""The table of a dataset: what is known about each sample except its pixels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class SampleTable:
    """One entry per sample, in the global order of the dataset (shard after shard).

    Attributes:
        labels: int64 [N], class index of each sample.
        environment: int64 [N], environment (domain) index of each sample.
        split: uint8 [N], index into `fedhpc.data.schema.SPLITS`, or 255 where the dataset gives none.
        attributes: name -> array [N]; categories are int32 codes (-1 = missing), numbers float32 (NaN = missing).
        class_names: class index -> name.
        environment_names: environment index -> name.
    """

    labels: np.ndarray
    environment: np.ndarray
    split: np.ndarray
    attributes: Mapping[str, np.ndarray] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    environment_names: tuple[str, ...] = ()

    @property
    def num_samples(self) -> int:
        """Number of samples N."""
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        """Number of classes, also those without a sample."""
        return len(self.class_names)

    @property
    def num_environments(self) -> int:
        """Number of environments, also those without a sample."""
        return len(self.environment_names)
