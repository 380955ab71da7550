"""The configuration: one YAML file and command-line options, checked strictly, saved resolved.

`sections.py` says which keys there are. To add a section, write its dataclass and a field of `RunConfig`; for another
kind of file (a study, a sweep), write another top-level dataclass and hand it to `load`. Neither torch, MPI nor HDF5 is
imported to judge a configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedhpc.config.help import describe_keys
from fedhpc.config.load import from_tree, load
from fedhpc.config.schema import Limits, NameIn, Plugin, Section, plugin_name, to_tree
from fedhpc.config.sections import (
    AggregationConfig,
    CheckpointConfig,
    CohortConfig,
    DataConfig,
    DeviceConfig,
    EvaluateConfig,
    GeneralizeConfig,
    LocalConfig,
    ModelConfig,
    PersonalizeConfig,
    RunConfig,
    ServerConfig,
    TransformConfig,
)
from fedhpc.config.study import PlannedRun, StudyConfig, plan_study, resolved_study
from fedhpc.config.yamltext import parse_yaml, read_yaml, to_yaml

__all__ = [
    "AggregationConfig",
    "CheckpointConfig",
    "CohortConfig",
    "DataConfig",
    "DeviceConfig",
    "EvaluateConfig",
    "GeneralizeConfig",
    "Limits",
    "LocalConfig",
    "ModelConfig",
    "NameIn",
    "PersonalizeConfig",
    "PlannedRun",
    "Plugin",
    "RunConfig",
    "Section",
    "ServerConfig",
    "StudyConfig",
    "TransformConfig",
    "describe_keys",
    "diff",
    "from_tree",
    "load",
    "load_config",
    "other_result",
    "parse_yaml",
    "plan_study",
    "plugin_name",
    "read_yaml",
    "resolved_study",
    "to_tree",
    "to_yaml",
]


def load_config(path: str, overrides: Sequence[str] = ()) -> RunConfig:
    """Read the configuration of a run; `overrides` are command-line words such as `["--local.lr", "0.1"]`.

    Raises:
        ConfigError: anything at all is wrong; names the file (or the command line), the key and what is allowed.
    """
    return load(RunConfig, path, overrides)


_SAME_RESULT = (
    "seed", "placement", "on_rank_loss", "hang_seconds", "warmup_rounds", "checkpoint", "device", "server",
    "data.root", "data.memory", "aggregation.chunk", "aggregation.reduce", "evaluate.batch_size",
)  # fmt: skip


def other_result(keys: Iterable[str]) -> list[str]:
    """Those of some dotted keys that make another experiment of a run.

    The others are its seed and what does not change what it learns: ranks and devices alter nothing but the last bits.
    """
    return [key for key in keys if not any(f"{key}.".startswith(f"{same}.") for same in _SAME_RESULT)]


def diff(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """The dotted keys whose values differ between two resolved configurations (`RunConfig.to_dict`), sorted."""
    left, right = dict(_flat(a, "")), dict(_flat(b, ""))
    missing = object()
    return sorted(key for key in left.keys() | right.keys() if left.get(key, missing) != right.get(key, missing))


def _flat(tree: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in tree.items():
        if isinstance(value, Mapping):
            pairs += _flat(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", list(value) if isinstance(value, tuple) else value))
    return pairs
