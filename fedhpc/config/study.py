"""The configuration of a study: which runs, with which seeds, changed in which way."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from fedhpc.config.load import from_tree, load
from fedhpc.config.options import merge_options, parse_options
from fedhpc.config.schema import Limits, Section, keys_of
from fedhpc.config.sections import RunConfig
from fedhpc.config.yamltext import read_yaml
from fedhpc.errors import ConfigError

_DOTTED = re.compile(r"[A-Za-z_][\w.-]*")


@dataclass(frozen=True, kw_only=True)
class StudyConfig(Section):
    """Several runs compared: every listed configuration with every seed, interleaved."""

    runs: Annotated[tuple[str, ...], "configuration files of the runs, relative to the study's file"]
    seeds: Annotated[tuple[int, ...], Limits(at_least=0), "each run is done once with each"] = (0,)
    settings: Annotated[dict[str, Any], "dotted keys and values that replace those of every run"] = field(
        default_factory=dict
    )
    vary: Annotated[dict[str, list[Any]], "dotted keys and the values that every run takes in turn, combined"] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for section in ("settings", "vary"):
            wrong = [key for key in getattr(self, section) if not _DOTTED.fullmatch(str(key))]
            if wrong:
                raise ConfigError(f"{section} must have keys such as local.lr, got '{wrong[0]}'")
        for key, values in self.vary.items():
            if not values or len({_text(v) for v in values}) < len(values):
                raise ConfigError(f"vary.{key} must list different values, got {values}")
            if key == "seed":
                raise ConfigError("vary.seed: seeds are listed under seeds")
        for name in ("runs", "seeds"):
            values = getattr(self, name)
            if not values:
                raise ConfigError(f"{name} must not be empty")
            if len(set(values)) != len(values):
                raise ConfigError(f"{name} names something twice: {', '.join(map(str, values))}")


_BLAMED = re.compile(r"command line: (?:unknown key '(?P<unknown>[^']+)'|--(?P<option>[\w.-]+))")

Load = Callable[[str, Sequence[str]], RunConfig]
"""Reads the configuration of a run: its file and command-line words."""


def _load(path: str, words: Sequence[str]) -> RunConfig:
    return load(RunConfig, path, words)


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study; `name` is its directory in the study's directory: file, varied values, seed."""

    name: str
    config: RunConfig


def plan_study(paths: Sequence[str], overrides: Sequence[str], load_run: Load = _load) -> list[PlannedRun]:
    """The runs of a study in the order in which they are done.

    Seed by seed, all configurations with each, so that what changes on the machine over hours meets all of them; the
    order within a seed rotates.

    Args:
        paths: one study file, or several configuration files of runs.
        overrides: command-line words; keys of a study go to the study, all others to every run.
        load_run: reads one run's file; where there are kinds of runs, it tells them apart.

    Raises:
        ConfigError: a file or key is wrong, or two runs would share a directory.
    """
    source, study, files, rest = _read(paths, overrides)
    names = [file.stem for file in files]
    if len(set(names)) != len(names):
        raise ConfigError(f"study: two configuration files have the same name, and so would their runs: {names}")
    combined = [dict(zip(study.vary, values, strict=True)) for values in product(*study.vary.values())]
    each = [(file, varied) for varied in combined for file in files]
    planned = []
    for turn, seed in enumerate(study.seeds):
        first = turn % len(each)
        for file, varied in each[first:] + each[:first]:
            planned.append(_run(source, file, varied, seed, study.settings, rest, load_run))
    if len({run.name for run in planned}) < len(planned):
        raise ConfigError("study: two runs would share a directory; vary values that differ in letters and digits")
    return planned


def resolved_study(paths: Sequence[str], overrides: Sequence[str]) -> dict[str, Any]:
    """A study as plain values, such that as a file, anywhere and without options, it plans the same runs.

    Raises:
        ConfigError: see `plan_study`, which also checks the runs.
    """
    _, study, files, rest = _read(paths, overrides)
    return {
        "runs": [str(file.absolute()) for file in files],
        "seeds": list(study.seeds),
        "settings": {**study.settings, **parse_options(rest)},
        "vary": dict(study.vary),
    }


def _read(paths: Sequence[str], overrides: Sequence[str]) -> tuple[str, StudyConfig, list[Path], list[str]]:
    """What to call the study in messages, the study, the files of its runs, and words for each of them."""
    own, rest = _split(overrides)
    if len(paths) == 1 and "runs" in read_yaml(paths[0]):
        study = load(StudyConfig, paths[0], own)
        source, files = paths[0], [_listed(paths[0], run) for run in study.runs]
    else:
        study = from_tree(StudyConfig, merge_options({"runs": list(paths)}, parse_options(own)), "study")
        source, files = "command line", [Path(p) for p in paths]
    for key in parse_options(rest):
        if key in study.vary:
            raise ConfigError(f"command line: --{key}: {source} varies it, and names the runs by its values")
        if key == "seed":
            raise ConfigError("command line: --seed: a study has --seeds, such as --seeds [0,1]")
    return source, study, files, rest


def _listed(source: str, run: str) -> Path:
    file = Path(source).parent / run
    if not file.is_file():
        raise ConfigError(f"{source}: runs: '{run}': there is no file {file}")
    return file


def _run(
    source: str,
    file: Path,
    varied: Mapping[str, Any],
    seed: int,
    settings: Mapping[str, Any],
    rest: list[str],
    load_run: Load,
) -> PlannedRun:
    values = {**settings, **varied, "seed": seed}
    words = [*(f"--{key}={_text(value)}" for key, value in values.items()), *rest]
    parts = [file.stem, *(f"{_short(key)}{_in_name(value)}" for key, value in varied.items())]
    try:
        config = load_run(str(file), words)
    except ConfigError as error:
        sections = {**dict.fromkeys(settings, "settings"), **dict.fromkeys(varied, "vary")}
        raise _placed(error, source, sections, parse_options(rest)) from None
    return PlannedRun("-".join([*parts, f"seed{seed}"]), config)


def _placed(error: ConfigError, source: str, sections: Mapping[str, str], given: Mapping[str, str]) -> ConfigError:
    """An error about a study's own key, which runs are given like the command line's, with its place in the study.

    Args:
        error: what reading a run raised.
        source: the study's file.
        sections: where in it each dotted key stands.
        given: keys that do come from the command line.
    """
    match = _BLAMED.match(str(error))
    if match is None:
        return error
    name = match["unknown"] or match["option"]
    origin = next((key for key in sections if key not in given and _within(key, name)), None)
    if origin is None or any(_within(key, name) for key in given):
        return error
    problem = str(error)[match.end() :]
    what = f"unknown key '{name}'" if match["unknown"] else name
    return ConfigError(f"{source}: {sections[origin]}: {what}{problem}")


def _within(key: str, name: str) -> bool:
    """Whether one of two dotted keys is the other or something below it."""
    return key == name or key.startswith(f"{name}.") or name.startswith(f"{key}.")


def _short(key: str) -> str:
    """The last part of a key that tells it from others: `lr` of `local.lr`, `recipe` of `recipe.name`."""
    return key.removesuffix(".name").removesuffix(".kind").rpartition(".")[2]


def _in_name(value: Any) -> str:
    """A value as part of a directory's name."""
    text = "+".join(map(_text, value)) if isinstance(value, (list, tuple)) else _text(value)
    return re.sub(r"[^A-Za-z0-9.+_-]", "_", text)


def _text(value: Any) -> str:
    """A value as the command line would have it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _split(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Words for the study's own keys, and the rest."""
    own_keys = {key.name for key in keys_of(StudyConfig)}
    own: list[str] = []
    rest: list[str] = []
    for key, text in parse_options(overrides, (StudyConfig, RunConfig)).items():
        (own if key.split(".")[0] in own_keys else rest).append(f"--{key}={text}")
    return own, rest
