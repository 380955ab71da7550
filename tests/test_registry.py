"""Plug-ins are found by their file names alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedhpc import registry
from fedhpc.errors import ConfigError


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "plugins_for_a_test"
    folder.mkdir()
    for name in ("__init__", "base", "_shared", "second", "first", "hparams", "setting", "weights"):
        (folder / f"{name}.py").write_text(f"NAME = {name!r}\n")
    (folder / "notes.txt").write_text("no module")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder.name
    for name in [m for m in sys.modules if m.startswith(folder.name)]:
        del sys.modules[name]


def test_names_are_file_names_in_order_without_shared_modules(package: str) -> None:
    assert registry.names(package) == ["first", "second"]


def test_listing_imports_no_plugin(package: str) -> None:
    registry.names(package)
    assert f"{package}.first" not in sys.modules


def test_a_new_file_is_a_new_plugin(package: str, tmp_path: Path) -> None:
    assert registry.load(package, "first").NAME == "first"
    (tmp_path / package / "third.py").write_text("NAME = 'third'\n")
    assert registry.names(package) == ["first", "second", "third"]
    assert registry.load(package, "third").NAME == "third"


@pytest.mark.parametrize("name", ["base", "_shared", "fist", "", "first.py", "..first"])
def test_anything_else_is_refused_with_what_there_is(package: str, name: str) -> None:
    with pytest.raises(ConfigError, match=r"there are: first, second") as caught:
        registry.load(package, name)
    assert caught.value.exit_code == 2


def test_a_slip_of_the_pen_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no 'fedavgg' among algorithms \(did you mean 'fedavg'\?\)"):
        registry.load("fedhpc.federated.algorithms", "fedavgg")


@pytest.mark.parametrize("kind", ["federated.algorithms", "objectives", "models", "data.sources", "data.partitions"])
def test_listing_the_packages_of_the_house_is_cheap(kind: str) -> None:
    code = (
        f"import sys; from fedhpc.registry import names; sys.exit(not names('fedhpc.{kind}') or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
