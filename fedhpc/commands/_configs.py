"""Which kind of run a configuration describes: one with a `scenario` is a medical run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from fedhpc.config import RunConfig, load_config, read_yaml
from fedhpc.errors import ConfigError

if TYPE_CHECKING:
    from fedhpc.medical.config import MedicalConfig


def is_medical(config: RunConfig) -> TypeGuard[MedicalConfig]:
    """Whether this is the configuration of a medical run."""
    return hasattr(config, "scenario")


def load_run(path: str, overrides: Sequence[str] = ()) -> RunConfig:
    """Read the configuration of a run of either kind.

    Raises:
        ConfigError: see `fedhpc.config.load_config`.
    """
    tree = read_yaml(path)
    for key, kind in (("sweep", "sweep"), ("runs", "study")):
        if key in tree:
            raise ConfigError(f"{path}: this is a {kind}: fedhpc {kind} {path}")
    if "scenario" not in tree:
        return load_config(path, overrides)
    from fedhpc.medical.config import load_medical

    return load_medical(path, overrides)


def run_from(tree: Mapping[str, Any], source: str = "configuration") -> RunConfig:
    """Rebuild what `to_dict` of either kind gave; `source` is named in errors."""
    if "scenario" not in tree:
        return RunConfig.from_dict(tree, source)
    from fedhpc.medical.config import MedicalConfig

    return MedicalConfig.from_dict(tree, source)
