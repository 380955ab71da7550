"""Plug-ins by file name: `objectives/erm.py` is the objective `erm`; nothing is registered by hand."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from fedhpc.errors import ConfigError, nearest

_NOT_PLUGINS = {"base", "hparams", "setting", "weights"}


def names(package: str) -> list[str]:
    """List the plug-ins of a package in alphabetical order; the plug-ins are not imported."""
    found = importlib.import_module(package)
    modules = (m.name for m in pkgutil.iter_modules(found.__path__))
    return sorted(m for m in modules if not m.startswith("_") and m not in _NOT_PLUGINS)


def load(package: str, name: str) -> ModuleType:
    """Import one plug-in module.

    Raises:
        ConfigError: no file of that name; the message lists what there is.
    """
    allowed = names(package)
    if name not in allowed:
        kind = package.rsplit(".", 1)[-1]
        raise ConfigError(f"no '{name}' among {kind}{nearest(name, allowed)}; there are: {', '.join(allowed)}")
    return importlib.import_module(f"{package}.{name}")
