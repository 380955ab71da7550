"""The configuration that a sweep's folder holds, and how far another one may differ from it; loads no torch."""

from __future__ import annotations

from pathlib import Path

from fedhpc.config import diff, from_tree, parse_yaml
from fedhpc.errors import ConfigError
from fedhpc.report.trial_files import CONFIG
from fedhpc.sweep.settings import AXES, HARMLESS, SweepConfig

_MOST_SHOWN = 8


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
