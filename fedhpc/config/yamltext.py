"""YAML in and out, by the rules of YAML 1.2: `no` is text, `1e-3` a number, `010` ten, a repeated key an error."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from fedhpc.errors import ConfigError

_LARGEST_FILE = 1 << 20
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$|[-+]?\.inf$|\.nan$", re.I)


class _Loader(yaml.SafeLoader):
    """Safe, and without YAML 1.1's surprises."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own protocol

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key '{key.value}' stands twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_decimal(self, node: yaml.ScalarNode) -> int:
        return int(self.construct_scalar(node))


class _Dumper(yaml.SafeDumper):
    """Quotes what either version of YAML would take for something else than text; writes lists on one line."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _tag, _pattern, _first in (
    ("null", re.compile(r"(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("int", re.compile(r"[-+]?[0-9]+$"), list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
    ("merge", re.compile(r"<<$"), ["<"]),
):
    yaml.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _pattern, _first, Loader=_Loader, Dumper=_Dumper)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_decimal)
_Dumper.add_representer(
    list, lambda dumper, items: dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)
)


def parse_yaml(text: str, source: str) -> dict[str, Any]:
    """Parse one YAML mapping.

    Raises:
        ConfigError: not YAML, more than one document, a repeated key, an empty text, or no mapping; names `source`
            and the line.
    """
    try:
        found = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        raise ConfigError(f"{source}:{at} {', '.join(p for p in (error.context, error.problem) if p)}") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{source}: not YAML: {str(error).splitlines()[0]}") from None
    if found is None:
        raise ConfigError(f"{source}: is empty; a configuration needs at least its required keys")
    if not isinstance(found, dict):
        raise ConfigError(f"{source}: holds a {type(found).__name__}, not a mapping of sections and keys")
    return found


def read_yaml(path: str) -> dict[str, Any]:
    """Read a configuration file (UTF-8, at most 1 MiB).

    Raises:
        ConfigError: the file cannot be read or is not one YAML mapping.
    """
    try:
        with Path(path).open("rb") as file:
            raw = file.read(_LARGEST_FILE + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such configuration file") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > _LARGEST_FILE:
        raise ConfigError(f"{path}: is larger than 1 MiB; is this a configuration file?")
    try:
        return parse_yaml(raw.decode("utf-8-sig"), path)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 (byte {error.start}); save it as UTF-8") from None


def to_yaml(tree: dict[str, Any]) -> str:
    """Write a mapping of plain values as YAML that `parse_yaml` reads back to an equal mapping."""
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
