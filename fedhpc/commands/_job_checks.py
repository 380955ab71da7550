"""What a login node can tell about a job before it waits in a queue: no torch, no MPI, nothing is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from fedhpc.commands import _federation, _medical
from fedhpc.commands._configs import compare_stored, is_medical
from fedhpc.config import RunConfig
from fedhpc.data.stores import Store, open_store
from fedhpc.errors import ConfigError, DataRequestError
from fedhpc.report.trial_files import is_sweep
from fedhpc.sweep.datasets import open_dataset
from fedhpc.sweep.settings import SweepConfig
from fedhpc.sweep.stored import refuse_change

_ELSEWHERE = "where only compute nodes have it, add --no-data-check"
_DIVIDING = ("data", "partition", "scenario", "recipe", "generalize", "personalize", "seed")


def check_directory(config: RunConfig, out: Path) -> None:
    """Refuse a run directory that is none or holds a run of another configuration.

    Raises:
        ConfigError: names the directory and what differs.
    """
    if os.path.exists(out) and not os.path.isdir(out):
        raise ConfigError(f"{out}: is a file; --out wants a directory")
    compare_stored(out, config)


def check_divisions(configs: Iterable[RunConfig]) -> None:
    """Open the datasets of runs and divide them as the runs will.

    Raises:
        ConfigError: a partition or scenario that is not possible.
        DatasetError: data that are missing or damaged.
    """
    stores: dict[tuple[str, str | None], Store] = {}
    seen: list[RunConfig] = []
    for config in configs:
        if any(_divides_alike(config, other) for other in seen):
            continue
        seen.append(config)
        key = (config.data.dataset, config.data.root)
        if key not in stores:
            stores[key] = _opened(partial(open_store, *key))
        if is_medical(config):
            _medical.divide(config, stores[key])
        else:
            _federation.divide(config, stores[key])


def check_sweep(config: SweepConfig, out: Path, with_data: bool) -> None:
    """Refuse a directory with another sweep, and datasets that cannot be opened.

    Raises:
        ConfigError: the directory holds a sweep with other settings.
        DatasetError: data that are missing or damaged.
    """
    if is_sweep(out):
        refuse_change(out, config)
    for name, root in config.sweep.roots.items() if with_data else ():
        if root is not None:  # others are embedded
            _opened(partial(open_dataset, name, root))


def _divides_alike(one: RunConfig, other: RunConfig) -> bool:
    """Whether two runs divide the same data in the same way."""
    return all(getattr(one, name, None) == getattr(other, name, None) for name in _DIVIDING)


def _opened(work: Callable[[], Store]) -> Store:
    try:
        return work()
    except DataRequestError as error:
        raise DataRequestError(f"{error}; {_ELSEWHERE}") from None
