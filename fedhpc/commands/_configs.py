"""Which kind of run a configuration describes (one with a `scenario` is a medical run), and whether it is another's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from fedhpc.config import RunConfig, diff, load_config, parse_yaml, read_yaml
from fedhpc.errors import ConfigError
from fedhpc.report.studies import resume_command
from fedhpc.runs.rundir import CONFIG

if TYPE_CHECKING:
    from fedhpc.medical.config import MedicalConfig

_HARMLESS = (
    "placement",
    "server.hosts_clients",
    "checkpoint.every",
    "checkpoint.keep",
    "data.root",
    "data.memory",
    "device.client_state_gib",
    "aggregation.reduce",
    "aggregation.chunk",
    "hang_seconds",
    "on_rank_loss",
)
"""Keys that may differ on resume: none of them changes a bit of the result."""


_KINDS = {"sweep": "sweep", "runs": "study", "rounds": "run"}
"""The key that only one kind of file has at its top."""


def is_medical(config: RunConfig) -> TypeGuard[MedicalConfig]:
    """Whether this is the configuration of a medical run."""
    return hasattr(config, "scenario")


def load_run(path: str, overrides: Sequence[str] = ()) -> RunConfig:
    """Read the configuration of a run of either kind.

    Raises:
        ConfigError: see `fedhpc.config.load_config`.
    """
    if (Path(path) / CONFIG).is_file():
        raise ConfigError(f"{path}: this is a run directory; go on with: {resume_command(Path(path))}")
    tree = read_yaml(path)
    refuse_other_kind(path, tree, "run")
    named = {*tree, *(word.lstrip("-").partition("=")[0].partition(".")[0] for word in overrides if word[:2] == "--")}
    if "scenario" not in tree:
        if key := next((key for key in ("recipe", "scenario") if key in named), None):
            raise ConfigError(f"{path}: {key} is a key of medical runs, and a file without a section scenario is none")
        return load_config(path, overrides)
    from fedhpc.medical.config import load_medical

    if "partition" in named and tree.get("partition", "") is not None:
        raise ConfigError(f"{path}: partition has no place in a medical run: its scenario divides the samples")
    return load_medical(path, overrides)


def refuse_other_kind(path: str, tree: Mapping[str, Any], kind: str) -> None:
    """Refuse a file of another kind than `kind` (run, study, sweep), with the command that takes it.

    Raises:
        ConfigError: it is another's.
    """
    other = next((other for key, other in _KINDS.items() if key in tree), kind)
    if other != kind:
        raise ConfigError(f"{path}: this is a {other}: fedhpc {other} {path}")


def run_from(tree: Mapping[str, Any], source: str = "configuration") -> RunConfig:
    """Rebuild what `to_dict` of either kind gave; `source` is named in errors."""
    if "scenario" not in tree:
        return RunConfig.from_dict(tree, source)
    from fedhpc.medical.config import MedicalConfig

    return MedicalConfig.from_dict(tree, source)


def compare_stored(folder: Path, config: RunConfig) -> None:
    """Refuse to go on with another configuration than the run of a directory began with.

    Args:
        folder: the run directory; one without a configuration goes with any.
        config: the new one.

    Raises:
        ConfigError: names the keys that differ.
    """
    file = folder / CONFIG
    if not file.exists():
        return
    old = run_from(parse_yaml(file.read_text(encoding="utf-8"), str(file)), str(file)).to_dict()
    new = config.to_dict()
    keys = [key for key in diff(old, new) if key not in _HARMLESS]
    if keys:
        shown = "; ".join(f"{key}: {_value(old, key)} there, {_value(new, key)} now" for key in keys[:8])
        more = f" and {len(keys) - 8} more" if len(keys) > 8 else ""
        raise ConfigError(f"{folder}: holds a run of another configuration ({shown}{more}); choose another --out")


def without_last_root(options: Sequence[str]) -> list[str] | None:
    """Options without the last `--data.root`, which is the one that counts; None where there is none."""
    places = [at for at, word in enumerate(options) if word.partition("=")[0] == "--data.root"]
    if not places:
        return None
    last = places[-1]
    return [*options[:last], *options[last + (1 if "=" in options[last] else 2) :]]


def before_copy(path: str, options: Sequence[str], config: RunConfig) -> RunConfig:
    """A run's configuration with the folder that its data were copied from, in place of this job's copy.

    A job that stages its data adds `--data.root COPY` to the command. What the run's directory keeps must be of use
    when the copy is gone, and on other nodes.

    Args:
        path: of the configuration.
        options: of the command.
        config: what they make.
    """
    rest = without_last_root(options)
    if rest is None:
        return config
    from fedhpc.sweep.stored import same_data  # numpy

    try:
        before = load_run(path, rest)
    except ConfigError:
        return config  # without the option there is no configuration
    return before if same_data(before.data.root, config.data.root) else config


def compare_data(file: Path, digest: str) -> None:
    """Refuse to go on with other data than the run of a directory began with; `data.root` itself may differ.

    Args:
        file: what the run wrote down of its data; one that is not there goes with any.
        digest: of the dataset as it is now; empty on ranks that do not know it.

    Raises:
        ConfigError: the digests differ.
    """
    if not digest or not file.exists():
        return
    before = json.loads(file.read_text(encoding="utf-8")).get("data")
    if before and before != digest:
        raise ConfigError(
            f"{file.parent}: its run began with other data than data.root holds now ({file.name}: {before[:8]} there, "
            f"{digest[:8]} now), or with a version of fedhpc that tells data apart otherwise; put "
            "back what it began with, or choose another --out"
        )


def _value(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree
