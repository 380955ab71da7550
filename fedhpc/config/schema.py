"""What a configuration class says about its keys: sections, plug-in sections, limits, one line of help.

A configuration is a dataclass. A field whose type is a `Section` is a section, a field marked with `Plugin` is a
section whose keys come from the chosen plug-in's own dataclass, everything else is a key. Marks stand in `Annotated`; a
string among them is the key's help. Nothing else has to be told: a new section, or a new kind of file, is a new class.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from typing import Annotated, Any, Literal

from fedhpc import registry
from fedhpc.errors import ConfigError, nearest


@dataclass(frozen=True)
class Limits:
    """Bounds of a number; for a list they hold for each entry."""

    at_least: float | None = None
    above: float | None = None
    below: float | None = None
    at_most: float | None = None

    def __str__(self) -> str:
        """The bounds in words."""
        words = ((name.replace("_", " "), getattr(self, name)) for name in ("at_least", "above", "below", "at_most"))
        return " and ".join(f"{word} {bound:g}" for word, bound in words if bound is not None)

    def problem(self, value: Any) -> str | None:
        """Say what is wrong with a value, or None."""
        for number in value if isinstance(value, (tuple, list)) else (value,):
            inside = (
                math.isfinite(number)
                and (self.at_least is None or number >= self.at_least)
                and (self.above is None or number > self.above)
                and (self.below is None or number < self.below)
                and (self.at_most is None or number <= self.at_most)
            )
            if not inside:
                return f"must be {self}, got {number}"
        return None


@dataclass(frozen=True)
class NameIn:
    """The value is the file name of a plug-in of this package."""

    package: str

    def problem(self, value: Any) -> str | None:
        """Say what is wrong with a value, or None."""
        allowed = registry.names(self.package)
        if value in allowed:
            return None
        return f"must be one of {', '.join(allowed)}, got '{value}'{nearest(str(value), allowed)}"


class Section:
    """Base of every configuration dataclass: checks the marks (`Limits`, `NameIn`) of its fields when it is made."""

    def __post_init__(self) -> None:
        for key in keys_of(type(self)):
            value = getattr(self, key.name)
            for mark in key.marks:
                problem = None if value is None else mark.problem(value)
                if problem:
                    raise ConfigError(f"{key.name} {problem}")


@dataclass(frozen=True)
class Plugin:
    """Marks a field as a section whose keys are those of the dataclass `attribute` in a module of `package`.

    The section's own key `key` names the module; without a `default` it is required. A field whose class default is
    None may be left out.
    """

    package: str
    key: str
    attribute: str
    default: str | None = None

    def load(self, name: str) -> type[Any]:
        """The dataclass of a plug-in.

        Raises:
            ConfigError: there is no plug-in of that name; the message lists what there is.
        """
        module = registry.load(self.package, name)
        cls: type[Any] = getattr(module, self.attribute)
        if not (isinstance(cls, type) and dataclasses.is_dataclass(cls) and cls.__module__ == module.__name__):
            raise TypeError(f"{module.__name__}.{self.attribute} must be a dataclass that is defined in that file")
        return cls


def plugin_name(instance: Any) -> str:
    """The name of the plug-in that an instance belongs to: the name of the file that defines its class."""
    return type(instance).__module__.rpartition(".")[2]


@dataclass(frozen=True)
class Key:
    """One field of a configuration dataclass."""

    name: str
    hint: Any
    optional: bool
    default: Any
    section: type[Section] | None
    plugin: Plugin | None
    marks: tuple[Limits | NameIn, ...]
    help: str

    @property
    def required(self) -> bool:
        """True if a configuration must give a value."""
        return self.default is MISSING and self.section is None and self.plugin is None


_known: dict[Any, tuple[Key, ...]] = {}


def keys_of(cls: type[Any]) -> tuple[Key, ...]:
    """The keys of a configuration dataclass, in order."""
    if cls not in _known:
        _known[cls] = _keys_of(cls)
    return _known[cls]


def _keys_of(cls: type[Any]) -> tuple[Key, ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple(_key(field, hints[field.name]) for field in dataclasses.fields(cls) if field.init)


def _key(field: dataclasses.Field[Any], hint: Any) -> Key:
    extras: tuple[Any, ...] = ()
    if typing.get_origin(hint) is Annotated:
        extras, hint = hint.__metadata__, hint.__origin__
    members = [h for h in _members(hint) if h is not type(None)]
    section = members[0] if len(members) == 1 and isinstance(members[0], type) else None
    plugins = [m for m in extras if isinstance(m, Plugin)]
    default = field.default if field.default_factory is MISSING else field.default_factory
    return Key(
        name=field.name,
        hint=hint,
        optional=type(None) in _members(hint) or (bool(plugins) and default is None),
        default=default,
        section=section if section is not None and issubclass(section, Section) else None,
        plugin=plugins[0] if plugins else None,
        marks=tuple(m for m in extras if isinstance(m, (Limits, NameIn))),
        help=" ".join(m for m in extras if isinstance(m, str)),
    )


def _members(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def describe(hint: Any) -> str:
    """A type in words for an error message."""
    plain = {int: "an integer", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(str(a) for a in args)
    if origin in (tuple, list) and args:
        inner = {int: "integers", float: "numbers", str: "texts"}.get(args[0], str(args[0]))
        return "a list" if args[0] is Any else f"a list of {inner}"
    if origin is dict:
        return "a mapping" if args[1] is Any else f"a mapping whose values are {describe(args[1])}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe(a) for a in args)
    return plain.get(hint, str(hint))


def to_tree(config: Any) -> dict[str, Any]:
    """A configuration as plain nested values, in the shape of its YAML file."""
    return dict(_entries(config))


def _entries(config: Any) -> Iterator[tuple[str, Any]]:
    for key in keys_of(type(config)):
        value = getattr(config, key.name)
        if key.plugin is not None and value is not None:
            yield key.name, {key.plugin.key: plugin_name(value), **to_tree(value)}
        elif key.section is not None and value is not None:
            yield key.name, to_tree(value)
        else:
            yield key.name, _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value
