"""Splits by unit (patient, lesion): all samples of a unit end up in one part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhpc.data.schema import SPLITS

_TRAIN, _VALIDATION, _TEST = (SPLITS.index(name) for name in ("train", "validation", "test"))


def unit_split(units: Sequence[str] | Sequence[int] | np.ndarray, test_fraction: float, seed: int = 0) -> np.ndarray:
    """Choose units for a test part, with scikit-learn's shuffle of the sorted unique units.

    Args:
        units: unit of each sample.
        test_fraction: share of the units, rounded up.
        seed: of the shuffle.

    Returns:
        bool [num_samples]: whether the sample's unit is in the test part.
    """
    from sklearn.model_selection import GroupShuffleSplit

    groups = np.unique(np.asarray(units), return_inverse=True)[1]
    _, test = next(GroupShuffleSplit(1, test_size=test_fraction, random_state=seed).split(groups, groups=groups))
    chosen = np.zeros(len(groups), dtype=bool)
    chosen[test] = True
    return chosen


def three_parts(units: Sequence[str], rest_fraction: float, seed: int = 0) -> np.ndarray:
    """Split codes uint8 [num_samples]: `rest_fraction` of the units in halves for validation and test, the rest train.

    These are the published splits of the six medical datasets where the same samples are there.
    """
    codes = np.full(len(units), _TRAIN, dtype=np.uint8)
    if len(set(units)) < 3:
        return codes
    chosen = unit_split(units, rest_fraction, seed)
    rest = np.asarray(units)[chosen]
    codes[chosen] = _VALIDATION
    if len(np.unique(rest)) > 1:
        codes[np.flatnonzero(chosen)[unit_split(rest, 0.5, seed)]] = _TEST
    return codes
