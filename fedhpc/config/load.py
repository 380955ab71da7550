"""From YAML and command line to a checked configuration object; jsonargparse judges each value by its type."""

from __future__ import annotations

import logging
import math
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from jsonargparse import ArgumentError, ArgumentParser

from fedhpc import registry
from fedhpc.config.options import guess, merge_options, named_options, named_plugins, parse_options
from fedhpc.config.schema import Key, Plugin, Section, describe, keys_of
from fedhpc.config.yamltext import read_yaml
from fedhpc.errors import ConfigError, nearest

T = TypeVar("T")
_NOT_OF_TYPE = (ArgumentError, ValueError, TypeError, OverflowError, RecursionError)
_log = logging.getLogger("fedhpc")


def load(kind: type[T], path: str, overrides: Sequence[str] = ()) -> T:
    """Read one configuration file of a kind (a configuration dataclass), change it by options, check all of it.

    Args:
        kind: the dataclass that says which keys there are.
        path: a YAML file.
        overrides: command-line words such as `["--local.lr", "0.1", "--rounds=5"]`; the last of a key wins.

    Raises:
        ConfigError: anything at all is wrong; names the file (or the command line), the key and what is allowed.
    """
    return _Builder(kind, path, read_yaml(path), parse_options(overrides, (kind,))).build()


def from_tree(kind: type[T], tree: Mapping[str, Any], source: str) -> T:
    """Make a configuration from nested plain values, as strictly as from a file; `source` is named in errors."""
    return _Builder(kind, source, tree, {}).build()


class _Builder:
    """One configuration on its way from texts to objects."""

    def __init__(self, kind: type[Any], source: str, tree: Mapping[str, Any], options: Mapping[str, str]) -> None:
        self.kind = kind
        self.source = source
        self.tree = named_plugins(kind, tree)
        self.options = named_options(kind, options)

    def build(self) -> Any:
        return self._object(self.kind, "", merge_options(self.tree, self.options), None)

    def _object(self, cls: type[Any], path: str, given: Mapping[Any, Any], chosen: Plugin | None) -> Any:
        """Make one dataclass from the values given for it; absent keys take the class's defaults."""
        keys = keys_of(cls)
        allowed = ([chosen.key] if chosen else []) + [key.name for key in keys]
        for name in given:
            if name not in allowed:
                raise self._unknown(path, str(name), allowed)
        values: dict[str, Any] = {}
        for key in keys:
            where = f"{path}.{key.name}" if path else key.name
            if key.required and key.name not in given:
                raise ConfigError(f"{self.source}: required key '{where}' is missing ({describe(key.hint)})")
            if key.plugin or key.section:
                values[key.name] = self._section(key, where, given.get(key.name))
            elif key.name in given:
                values[key.name] = self._typed(key, where, given[key.name])
        try:
            return cls(**values)
        except ConfigError as error:
            raise self._placed(path, str(error)) from None

    def _section(self, key: Key, where: str, given: Any) -> Any:
        if given is None:
            if key.optional:
                return None
            given = {}  # `local:` with nothing below it is a section with no keys
        if not isinstance(given, dict):
            named = isinstance(given, str) and any(k.name == "name" for k in keys_of(key.section or Section))
            remedy = f"; write {where}.name {_short_text(given)}" if named else ""
            raise self._fail(where, f"is a section with keys of its own, got {_short(given)}{remedy}")
        if key.plugin:
            return self._plugin(key.plugin, where, given)
        assert key.section is not None
        return self._object(key.section, where, given, None)

    def _plugin(self, plugin: Plugin, where: str, given: dict[str, Any]) -> Any:
        named = f"{where}.{plugin.key}"
        name = given.get(plugin.key, plugin.default)
        if name is None:
            allowed = ", ".join(registry.names(plugin.package))
            raise ConfigError(f"{self.source}: required key '{named}' is missing (one of {allowed})")
        cls = self._plugin_class(plugin, named, name)
        return self._object(cls, where, self._without_former(plugin, where, cls, given), plugin)

    def _plugin_class(self, plugin: Plugin, named: str, name: Any) -> type[Any]:
        allowed = registry.names(plugin.package)
        if name not in allowed:
            raise self._fail(
                named, f"must be one of {', '.join(allowed)}, got {_short(name)}{nearest(str(name), allowed)}"
            )
        return plugin.load(name)

    def _without_former(self, plugin: Plugin, where: str, cls: type[Any], given: dict[str, Any]) -> dict[str, Any]:
        """Drop the file's keys of another plug-in where the command line chose a new one: it has no use for them."""
        named = f"{where}.{plugin.key}"
        before: Any = self.tree
        for part in where.split("."):
            before = before.get(part) if isinstance(before, Mapping) else None
        if named not in self.options or not isinstance(before, Mapping):
            return given
        former_name = before.get(plugin.key, plugin.default)
        if former_name is None:
            return given
        former = {key.name for key in keys_of(self._plugin_class(plugin, named, former_name))}
        stale = [n for n in before if n in former and f"{where}.{n}" not in self.options]
        stale = [n for n in stale if n not in {key.name for key in keys_of(cls)}]
        for name in stale:
            _log.warning(
                f"{self.source}: {where}.{name} belongs to {former_name} and is dropped: "
                f"the command line chose --{named} {self.options[named]}"
            )
        return {name: value for name, value in given.items() if name not in stale}

    def _typed(self, key: Key, where: str, given: Any) -> Any:
        """Let jsonargparse turn one value into its type."""
        if given is None:
            if key.optional:
                return None
            raise self._fail(where, f"must be {describe(key.hint)}, got null")
        try:
            value = _parsed(key, given)
        except _NOT_OF_TYPE:
            raise self._fail(
                where, f"must be {describe(key.hint)}, got {_short(given)}{_as_list(key, given)}"
            ) from None
        if not all(math.isfinite(number) for number in _floats(value)):
            raise self._fail(where, f"must be finite, got {_short(given)}")
        return value

    def _fail(self, path: str, problem: str) -> ConfigError:
        return ConfigError(f"{self._blame(path, 'command line: --', f'{self.source}: ')}{path} {problem}")

    def _blame(self, path: str, option: str, file: str) -> str:
        """`option` if the command line gave the key or something below it, else `file`."""
        return option if any(o == path or o.startswith(f"{path}.") for o in self.options) else file

    def _placed(self, path: str, message: str) -> ConfigError:
        """A class's own complaint, with the place of its key in front."""
        if path and not message.startswith((f"{path}.", f"{path}:", f"{path} ")):
            message = f"{path}.{message}"
        where, _, problem = message.partition(" ")
        return self._fail(where.rstrip(":"), problem)

    def _unknown(self, path: str, name: str, allowed: list[str]) -> ConfigError:
        where = f"{path}.{name}" if path else name
        source = self._blame(where, "command line", self.source)
        place = f"{path} has" if path else "there are"
        return ConfigError(
            f"{source}: unknown key '{where}'{guess(self.kind, path, name, allowed)}; {place}: {', '.join(allowed)}"
        )


def _parsed(key: Key, given: Any) -> Any:
    parser = ArgumentParser(exit_on_error=False, add_help=False)
    parser.add_argument("--value", type=key.hint)
    return parser.parse_object({"value": given})["value"]


def _as_list(key: Key, given: Any) -> str:
    """How a single value is written where a list is wanted; nothing where that would not do either."""
    if isinstance(given, (list, dict)):
        return ""
    listed = f"[{given}]"
    try:
        _parsed(key, listed)
    except _NOT_OF_TYPE:
        return ""
    return f"; write {_short_text(listed)}"


def _floats(value: Any) -> Iterator[float]:
    for item in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(item, float):
            yield item


def _short(value: Any) -> str:
    """A value for an error message, cut to a readable length whatever it is."""
    return _short_text(reprlib.repr(value))


def _short_text(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."
