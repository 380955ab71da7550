"""`fedhpc list`: what can be named in a configuration."""

from __future__ import annotations

import argparse
import dataclasses
import typing

from fedhpc import registry
from fedhpc.errors import DONE, ConfigError, nearest

HELP = """List what a configuration can name, or its keys with types, defaults and meanings.

example:
  fedhpc list algorithms
  fedhpc list keys
"""

_PACKAGES = {
    "algorithms": "fedhpc.federated.algorithms",
    "commands": "fedhpc.commands",
    "criteria": "fedhpc.report.criteria",
    "datasets": "fedhpc.data.sources",
    "models": "fedhpc.models",
    "objectives": "fedhpc.objectives",
    "partitions": "fedhpc.data.partitions",
    "recipes": "fedhpc.medical.recipes",
    "scenarios": "fedhpc.medical.scenarios",
}
KINDS = sorted([*_PACKAGES, "optimizers", "personalisations", "schedulers"])
KEYS = ("keys", "medical_keys", "study_keys", "sweep_keys")
"""Of the files of runs, medical runs, studies and sweeps."""
_OPTIONS = {"algorithms": "ALGORITHM", "partitions": "PARTITION", "recipes": "RECIPE", "scenarios": "SCENARIO"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own options."""
    parser.add_argument("kind", metavar="KIND", nargs="?", help=f"one of {', '.join([*KINDS, *KEYS])}")


def run(args: argparse.Namespace, overrides: list[str]) -> int:
    """Run the command; returns the exit code."""
    if args.kind is None:
        for kind in KINDS:
            print(f"{kind}: {', '.join(_names(kind))}")
        print(f"keys of configurations: fedhpc list {' | '.join(KEYS)}")
        return DONE
    if args.kind in KEYS:
        print(_keys(args.kind))
        return DONE
    if args.kind not in KINDS:
        allowed = [*KINDS, *KEYS]
        raise ConfigError(f"no kind '{args.kind}'{nearest(args.kind, allowed)}; there are: {', '.join(allowed)}")
    for name in _names(args.kind):
        print(f"{name}{_fields(args.kind, name)}")
    return DONE


def _keys(kind: str) -> str:
    """All keys of one kind of file."""
    from fedhpc.config import RunConfig, StudyConfig, describe_keys

    if kind == "sweep_keys":
        from fedhpc.sweep.settings import SweepConfig

        return describe_keys(SweepConfig)
    if kind == "medical_keys":
        from fedhpc.medical.config import MedicalConfig

        return describe_keys(MedicalConfig, without=("partition",))
    return describe_keys(StudyConfig if kind == "study_keys" else RunConfig)


def _names(kind: str) -> list[str]:
    """The plug-ins of a kind, or what its key allows."""
    if kind in _PACKAGES:
        return registry.names(_PACKAGES[kind])
    from fedhpc.config.sections import LocalConfig, PersonalizeConfig
    from fedhpc.launch import SCHEDULERS

    keys: dict[str, tuple[type, str]] = {
        "optimizers": (LocalConfig, "optimizer"),
        "personalisations": (PersonalizeConfig, "method"),
    }
    if kind not in keys:
        return list(SCHEDULERS)
    section, key = keys[kind]
    return list(typing.get_args(typing.get_type_hints(section)[key]))


def _fields(kind: str, name: str) -> str:
    """The hyperparameters of a plug-in that has them in its configuration section, with their defaults."""
    if kind not in _OPTIONS:
        return ""
    plugin = getattr(registry.load(_PACKAGES[kind], name), _OPTIONS[kind])
    shown = [
        f.name if f.default is dataclasses.MISSING else f"{f.name}={f.default}" for f in dataclasses.fields(plugin)
    ]
    return f"  ({', '.join(shown)})" if shown else ""
