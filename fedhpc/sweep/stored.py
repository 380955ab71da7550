"""The configuration that a sweep's folder holds, and how far another one may differ from it; loads no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedhpc.config import diff, from_tree, load, parse_yaml
from fedhpc.data.schema import MANIFEST
from fedhpc.errors import ConfigError
from fedhpc.report.trial_files import CONFIG
from fedhpc.sweep.settings import AXES, HARMLESS, SweepConfig

_MOST_SHOWN = 8
_DATASETS = "--sweep.datasets."


def stored_config(folder: Path) -> SweepConfig:
    """The smallest configuration that has all trials that were ever asked for.

    Raises:
        ConfigError: it is of another version, or damaged.
    """
    file = folder / CONFIG
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror})") from None
    return from_tree(SweepConfig, parse_yaml(text, str(file)), str(file))


def refuse_change(folder: Path, config: SweepConfig) -> SweepConfig:
    """Compare a configuration with the one that a sweep began with; returns the latter.

    Raises:
        ConfigError: they differ in more than what a sweep runs over; names the keys.
    """
    old = stored_config(folder)
    changed = [k for k in diff(old.to_dict(), config.to_dict()) if not k.startswith((*AXES, *HARMLESS))]
    if changed:
        raise ConfigError(
            f"{folder}: holds a sweep with other settings ({', '.join(changed[:_MOST_SHOWN])}); choose another --out"
        )
    return old


def without_copies(config: SweepConfig, path: str, overrides: Sequence[str]) -> SweepConfig:
    """The configuration with the folders that its datasets were copied from, in place of this job's copies.

    A job that stages its data adds `--sweep.datasets.NAME COPY` to the command. What the folder of the sweep keeps must
    be of use when the copy is gone, and on other nodes.

    Args:
        config: with all overrides.
        path: of the configuration.
        overrides: of its keys.
    """
    try:
        before = load(SweepConfig, path, _without_last(overrides)).sweep.roots
    except ConfigError:
        return config  # without them there is none
    roots = {
        name: before[name] if same_data(before.get(name), root) else root for name, root in config.sweep.roots.items()
    }
    return replace(config, sweep=replace(config.sweep, datasets=roots))


def _without_last(overrides: Sequence[str]) -> list[str]:
    """All words but the last option for the folder of each dataset, which is the one that counts."""
    last: dict[str, set[int]] = {}
    for place, word in enumerate(overrides):
        if word.startswith(_DATASETS):
            name, equals, _ = word.partition("=")
            last[name] = {place} if equals else {place, place + 1}
    dropped = set().union(*last.values())
    return [word for place, word in enumerate(overrides) if place not in dropped]


def same_data(one: str | None, other: str | None) -> bool:
    """Whether two folders hold the same dataset: the manifest has a checksum of everything."""
    if one is None or other is None:
        return False
    try:
        return (Path(one) / MANIFEST).read_bytes() == (Path(other) / MANIFEST).read_bytes()
    except OSError:
        return False
