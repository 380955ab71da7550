"""From YAML and command line to a checked configuration object; jsonargparse judges each value by its type."""

from __future__ import annotations

import dataclasses
import difflib
import logging
import math
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from jsonargparse import ArgumentError, ArgumentParser

from fedhpc import registry
from fedhpc.config.schema import Key, Plugin, describe, keys_of
from fedhpc.config.yamltext import read_yaml
from fedhpc.errors import ConfigError, nearest

T = TypeVar("T")
_log = logging.getLogger("fedhpc")
_OPTION = re.compile(r"--([A-Za-z_][\w.-]*)(?:=(.*))?", re.DOTALL)


def load(kind: type[T], path: str, overrides: Sequence[str] = ()) -> T:
    """Read one configuration file of a kind (a configuration dataclass), change it by options, check all of it.

    Args:
        kind: the dataclass that says which keys there are.
        path: a YAML file.
        overrides: command-line words such as `["--local.lr", "0.1", "--rounds=5"]`; the last of a key wins.

    Raises:
        ConfigError: anything at all is wrong; names the file (or the command line), the key and what is allowed.
    """
    return _Builder(path, read_yaml(path), parse_options(overrides)).build(kind)


def from_tree(kind: type[T], tree: Mapping[str, Any], source: str) -> T:
    """Make a configuration from nested plain values, as strictly as from a file; `source` is named in errors."""
    return _Builder(source, tree, {}).build(kind)


def parse_options(words: Sequence[str]) -> dict[str, str]:
    """Split `--key value` and `--key=value` words into dotted keys and texts.

    Raises:
        ConfigError: a word that is no option, or an option without a value.
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
                raise ConfigError(f"command line: --{name} needs a value")
            value = rest.pop(0)
        options[name] = value
    return options


@dataclass(frozen=True)
class _Leaf:
    path: str
    key: Key
    value: Any
    given: bool


class _Builder:
    """One configuration on its way from texts to objects."""

    def __init__(self, source: str, tree: Mapping[str, Any], options: Mapping[str, str]) -> None:
        self.source = source
        self.tree = tree
        self.options = options

    def build(self, kind: type[T]) -> T:
        return self._object(kind, "", self._merged(kind), None)  # type: ignore[no-any-return]

    def _fail(self, path: str, problem: str) -> ConfigError:
        if path in self.options:
            return ConfigError(f"command line: --{path} {problem}")
        return ConfigError(f"{self.source}: {path} {problem}")

    def _merged(self, kind: type[Any]) -> dict[str, Any]:
        """The file's tree with the command line's texts put in their places."""
        merged = _copy(self.tree)
        for path, text in self.options.items():
            *parents, last = path.split(".")
            place = merged
            for depth, parent in enumerate(parents):
                if place.get(parent) is None:
                    place[parent] = {}
                place = place[parent]
                if not isinstance(place, dict):
                    raise self._unknown(kind, path) if depth else self._fail(parent, "is not a section")
            place[last] = text
        return merged

    def _object(self, cls: type[Any], path: str, given: Mapping[str, Any], chosen: Plugin | None) -> Any:
        """Make one dataclass from the values given for it; absent keys take the class's defaults."""
        keys = {key.name: key for key in keys_of(cls)}
        extra = {chosen.key} if chosen else set()
        for name in given:
            if name not in keys and name not in extra:
                raise self._unknown_in(cls, path, name, [*extra, *keys])
        values: dict[str, Any] = {}
        for key in keys.values():
            where = f"{path}.{key.name}" if path else key.name
            if key.required and key.name not in given:
                raise ConfigError(f"{self.source}: required key '{where}' is missing ({describe(key.hint)})")
            if key.plugin or key.section or key.name in given:
                value = self._value(key, where, given.get(key.name))
                if not (value is None and key.name not in given):
                    values[key.name] = value
        try:
            return cls(**values)
        except ConfigError as error:
            raise self._placed(path, str(error)) from None

    def _value(self, key: Key, where: str, given: Any) -> Any:
        if key.plugin or key.section:
            if given is None and key.optional:
                return None
            given = {} if given is None else given  # `local:` with nothing below it is a section with no keys
            if not isinstance(given, dict):
                raise self._fail(where, f"is a section with keys of its own, got {_short(given)}")
            return self._plugin(key.plugin, where, given) if key.plugin else self._object(_section(key), where, given, None)
        return self._typed(where, key, given)

    def _plugin(self, plugin: Plugin, where: str, given: dict[str, Any]) -> Any:
        name = given.get(plugin.key, plugin.default)
        named = f"{where}.{plugin.key}"
        if name is None:
            raise ConfigError(
                f"{self.source}: required key '{named}' is missing (one of {', '.join(registry.names(plugin.package))})"
            )
        cls = self._plugin_class(plugin, named, name)
        return self._object(cls, where, self._without_former(plugin, where, cls, given), plugin)

    def _plugin_class(self, plugin: Plugin, named: str, name: Any) -> type[Any]:
        allowed = registry.names(plugin.package)
        if name not in allowed:
            raise self._fail(named, f"must be one of {', '.join(allowed)}, got {_short(name)}{nearest(str(name), allowed)}")
        return plugin.load(name)

    def _without_former(self, plugin: Plugin, where: str, cls: type[Any], given: dict[str, Any]) -> dict[str, Any]:
        """Drop the file's keys of another plug-in where the command line chose a new one."""
        named = f"{where}.{plugin.key}"
        before = _at(self.tree, where)
        if named not in self.options or not isinstance(before, dict) or plugin.key not in before:
            return given
        former = {key.name for key in keys_of(self._plugin_class(plugin, named, before[plugin.key]))}
        stale = {n for n in before if n in former and f"{where}.{n}" not in self.options}
        stale -= {key.name for key in keys_of(cls)}
        for name in sorted(stale):
            _log.warning("%s: %s.%s is dropped, for the command line chose --%s %s", self.source, where, name, named,
                         self.options[named])
        return {name: value for name, value in given.items() if name not in stale}

    def _typed(self, where: str, key: Key, given: Any) -> Any:
        """Let jsonargparse turn one value into its type."""
        if given is None:
            if key.optional:
                return None
            raise self._fail(where, f"must be {describe(key.hint)}, got null")
        parser = ArgumentParser(exit_on_error=False, add_help=False)
        parser.add_argument("--value", type=key.hint)
        try:
            value = parser.parse_object({"value": given})["value"]
        except (ArgumentError, ValueError, TypeError, RecursionError):
            raise self._fail(where, f"must be {describe(key.hint)}, got {_short(given)}") from None
        if not all(math.isfinite(x) for x in _floats(value)):
            raise self._fail(where, f"must be finite, got {_short(given)}")
        return value

    def _placed(self, path: str, message: str) -> ConfigError:
        """A class's own complaint, with the place of the key in front."""
        prefix = f"{path}." if path and not message.startswith(f"{path}.") else ""
        placed = f"{prefix}{message}"
        option = placed.split(maxsplit=1)[0].rstrip(":,")
        return ConfigError(f"command line: --{placed}" if option in self.options else f"{self.source}: {placed}")

    def _unknown(self, kind: type[Any], path: str) -> ConfigError:
        return ConfigError(f"command line: there is no key '{path}'{_nearest_anywhere(kind, path)}")

    def _unknown_in(self, cls: type[Any], path: str, name: Any, allowed: list[str]) -> ConfigError:
        where = f"{path}.{name}" if path else str(name)
        source = "command line" if any(o == where or o.startswith(f"{where}.") for o in self.options) else self.source
        return ConfigError(
            f"{source}: unknown key '{where}'{self._guess(cls, path, str(name), allowed)}; "
            f"{'in ' + path if path else 'at the top'} there {'is' if len(allowed) == 1 else 'are'}: {', '.join(allowed)}"
        )
