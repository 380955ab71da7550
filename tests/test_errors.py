"""Errors that are the user's to fix."""

from __future__ import annotations

import pytest

from fedhpc import errors
from fedhpc.errors import AgreedError, ConfigError, DatasetError, FedhpcError, nearest


def test_exit_codes_are_those_of_the_manual() -> None:
    assert (errors.DONE, errors.FAILED, errors.BAD_USAGE, errors.STOPPED_EARLY) == (0, 1, 2, 75)
    assert FedhpcError("x").exit_code == 1
    assert ConfigError("x").exit_code == 2
    assert DatasetError("x").exit_code == 1
    assert AgreedError("x").exit_code == 1
    assert AgreedError("x", 2).exit_code == 2


@pytest.mark.parametrize("kind", [FedhpcError, ConfigError, DatasetError, AgreedError])
def test_every_kind_is_a_value_error_of_the_house(kind: type[FedhpcError]) -> None:
    assert issubclass(kind, FedhpcError)
    assert issubclass(kind, ValueError)
    assert str(kind("client 3 is empty")) == "client 3 is empty"


@pytest.mark.parametrize(
    ("word", "hint"),
    [("scafold", " (did you mean 'scaffold'?)"), ("fedavg", " (did you mean 'fedavg'?)"), ("zzz", ""), ("", "")],
)
def test_nearest_word(word: str, hint: str) -> None:
    assert nearest(word, ["fedavg", "scaffold"]) == hint


def test_nearest_of_nothing() -> None:
    assert nearest("x", []) == ""
