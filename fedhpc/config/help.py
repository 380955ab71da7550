"""The keys of a kind of configuration as text, for `fedhpc list`."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any

from fedhpc import registry
from fedhpc.config.schema import Key, Limits, NameIn, Plugin, describe, keys_of

_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {5,}.*)*)", re.M)
"""One entry of a docstring's list of attributes, with the lines that go on with it."""


def describe_keys(kind: type[Any], without: Sequence[str] = ()) -> str:
    """One line per key of a configuration class: dotted key, type and limits, default, help; plug-ins included.

    Args:
        kind: the class.
        without: keys of its top that are left out.
    """
    rows = [row for row in _rows(kind, "") if row[0].partition(".")[0] not in without]
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
    """The key that names the plug-in, then the keys of all plug-ins; in brackets, which have it, if not all."""
    names = registry.names(plugin.package)
    default = f", default {plugin.default}" if plugin.default else ", required"
    yield f"{where}.{plugin.key}", f"one of {', '.join(names)}{default}"
    having: dict[str, dict[str, list[str]]] = {}
    for name in names:
        cls = plugin.load(name)
        documented = _documented(cls)
        for key in keys_of(cls):
            text = _text(key, documented.get(key.name, ""))
            having.setdefault(key.name, {}).setdefault(text, []).append(name)
    for key_name, texts in having.items():
        for text, found in texts.items():
            yield f"{where}.{key_name}", text if len(found) == len(names) else f"{text} [{', '.join(found)}]"


def _documented(cls: type[Any]) -> dict[str, str]:
    """What the docstrings of a class and its bases say of their attributes, and the bases of keys it has again."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        _, _, section = inspect.cleandoc(base.__doc__ or "").partition("\nAttributes:\n")
        for name, text in _ATTRIBUTE.findall(section.partition("\n\n")[0]):
            found[name] = " ".join(text.split()).rstrip(".")
        if dataclasses.is_dataclass(base):
            found.update({key.name: key.help for key in keys_of(base) if key.help})
    return found


def _text(key: Key, documented: str = "") -> str:
    limits = "".join(f" {mark}" for mark in key.marks if isinstance(mark, Limits))
    names = [mark for mark in key.marks if isinstance(mark, NameIn)]
    kind = f"one of {', '.join(registry.names(names[0].package))}" if names else describe(key.hint)
    about = key.help or documented
    default = "required" if key.required else f"default {_default(key)}"
    return f"{kind}{limits}, {default}{'; ' + about if about else ''}"


def _default(key: Key) -> str:
    value = key.default() if callable(key.default) else key.default
    if isinstance(value, tuple):
        return str(list(value))
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
