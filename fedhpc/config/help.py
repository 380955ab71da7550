"""The keys of a kind of configuration as text, for `--help` and the docs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedhpc import registry
from fedhpc.config.schema import Key, Limits, NameIn, Plugin, describe, keys_of


def describe_keys(kind: type[Any]) -> str:
    """One line per key of a configuration class: dotted key, type and limits, default, help; plug-ins included."""
    rows = list(_rows(kind, ""))
    width = max(len(row[0]) for row in rows)
    return "\n".join(f"  {key:<{width}}  {text}" for key, text in rows)


def _rows(cls: type[Any], path: str) -> Iterator[tuple[str, str]]:
    for key in keys_of(cls):
        where = f"{path}.{key.name}" if path else key.name
        if key.plugin:
            yield from _plugin_rows(key.plugin, where)
        elif key.section:
            yield from _rows(key.section, where)
        else:
            yield where, _text(key)


def _plugin_rows(plugin: Plugin, where: str) -> Iterator[tuple[str, str]]:
    names = registry.names(plugin.package)
    default = f", default {plugin.default}" if plugin.default else ", required"
    yield f"{where}.{plugin.key}", f"one of {', '.join(names)}{default}"
    for name in names:
        for key in keys_of(plugin.load(name)):
            yield f"{where}.{key.name} ({name})", _text(key)


def _text(key: Key) -> str:
    limits = "".join(f" {mark}" for mark in key.marks if isinstance(mark, Limits))
    names = [mark for mark in key.marks if isinstance(mark, NameIn)]
    kind = f"one of {', '.join(registry.names(names[0].package))}" if names else describe(key.hint)
    default = "required" if key.required else f"default {_default(key)}"
    return f"{kind}{limits}, {default}{'; ' + key.help if key.help else ''}"


def _default(key: Key) -> str:
    value = key.default() if callable(key.default) else key.default
    if isinstance(value, tuple):
        return str(list(value))
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
