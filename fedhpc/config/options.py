"""The command line's `--section.key value` words, and guesses at what a mistyped key was meant to be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedhpc.config.schema import keys_of
from fedhpc.errors import ConfigError, nearest

_OPTION = re.compile(r"--([A-Za-z_][\w.-]*)(?:=(.*))?", re.DOTALL)


def parse_options(words: Sequence[str], kinds: Sequence[type[Any]] = ()) -> dict[str, str]:
    """Split `--key value` and `--key=value` words into dotted keys and texts; the last of a key wins.

    Args:
        words: of the command line.
        kinds: the configurations whose keys these may be, to tell a key without a value from an unknown option.

    Raises:
        ConfigError: a word that is no option, an unknown one, or a key without a value.
    """
    options: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        match = _OPTION.fullmatch(word)
        if match is None:
            raise ConfigError(f"command line: '{word}' is not an option; write --section.key VALUE")
        name, value = match.groups()
        if value is None:
            if not rest or rest[0].startswith("--"):
                raise _without_value(name, kinds)
            value = rest.pop(0)
        options[name] = value
    return options


def _without_value(name: str, kinds: Sequence[type[Any]]) -> ConfigError:
    sections = {key.name for kind in kinds for key in keys_of(kind)}
    if kinds and name.split(".")[0] not in sections:
        known = [key for kind in kinds for key in dotted_keys(kind)]
        return ConfigError(f"command line: unknown option '--{name}'{nearest(name, known)}")
    return ConfigError(f"command line: --{name} needs a value (one that starts with -- goes after =)")


def merge_options(tree: Mapping[str, Any], options: Mapping[str, str]) -> dict[str, Any]:
    """A copy of a file's tree with the command line's texts put in their places.

    Raises:
        ConfigError: an option goes below something that is not a section.
    """
    merged = copy_sections(tree)
    for path, text in options.items():
        *parents, last = path.split(".")
        place = merged
        for depth, parent in enumerate(parents):
            if place.get(parent) is None:
                place[parent] = {}
            place = place[parent]
            if not isinstance(place, dict):
                raise ConfigError(f"command line: --{path}: '{'.'.join(parents[: depth + 1])}' is not a section")
        place[last] = text
    return merged


def named_plugins(kind: type[Any], tree: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a file's tree in which the bare name of a plug-in (`recipe: cb`) is a section (`{name: cb}`)."""
    named = copy_sections(tree)
    for path, key in plugin_sections(kind):
        *parents, last = path.split(".")
        place: Any = named
        for parent in parents:
            place = place.get(parent) if isinstance(place, dict) else None
        if isinstance(place, dict) and isinstance(place.get(last), str):
            place[last] = {key: place[last]}
    return named


def named_options(kind: type[Any], options: Mapping[str, str]) -> dict[str, str]:
    """The same for options: `--recipe cb` is `--recipe.name cb`; the last of a key wins."""
    keys = dict(plugin_sections(kind))
    return {f"{path}.{keys[path]}" if path in keys else path: text for path, text in options.items()}


def plugin_sections(kind: type[Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Dotted path of every plug-in section of a kind of configuration, and its key that names the plug-in."""
    for key in keys_of(kind):
        where = f"{path}.{key.name}" if path else key.name
        if key.plugin:
            yield where, key.plugin.key
        elif key.section:
            yield from plugin_sections(key.section, where)


def copy_sections(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Copy nested mappings; values are shared."""
    return {k: copy_sections(v) if isinstance(v, Mapping) else v for k, v in tree.items()}


def guess(kind: type[Any], path: str, name: str, siblings: Sequence[str]) -> str:
    """Return ` (did you mean 'x'?)` for a mistyped key: the nearest beside it, else the same name elsewhere."""
    dot = f"{path}." if path else ""
    found = nearest(f"{dot}{name}", [f"{dot}{s}" for s in siblings]) if nearest(name, list(siblings)) else ""
    if found:
        return found
    elsewhere = [p for p in dotted_keys(kind) if p.rpartition(".")[2] == name]
    return f" (did you mean '{elsewhere[0]}'?)" if elsewhere else ""


def dotted_keys(kind: type[Any], path: str = "") -> Iterator[str]:
    """Every key a kind of configuration has by itself; a plug-in section gives the key that names the plug-in."""
    for key in keys_of(kind):
        where = f"{path}.{key.name}" if path else key.name
        if key.plugin:
            yield f"{where}.{key.plugin.key}"
        elif key.section:
            yield from dotted_keys(key.section, where)
        else:
            yield where
