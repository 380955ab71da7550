"""Cases are found whatever their files are called, wherever they lie and however many there are."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from fedhpc.report.sweeps import results
from tests.golden.domainbed_cases import OWN, cases, stem
from tests.golden.selection_cases import records_of


def shuffled(folder: Path, into: Path, renamed: str, deep: bool) -> Path:
    """A copy of all JSON in a folder under other names, flat or one folder each; what shares a stem goes on to."""
    numbers: dict[str, int] = {}
    for path in sorted([*folder.rglob("*.json"), *folder.rglob("*.jsonl")]):
        number = numbers.setdefault(stem(path), len(numbers))
        target = into / (f"nest{number}/below" if deep else "") / renamed.format(number, path.stem[-1])
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target.with_suffix(path.suffix))
    return into


@pytest.mark.parametrize(("renamed", "deep"), [("{0}", True), ("x{0}", False), ("{1}_other_{0}", False)])
def test_renamed_and_moved_cases_are_found(tmp_path: Path, renamed: str, deep: bool) -> None:
    own = cases(OWN)
    found = cases(shuffled(OWN, tmp_path, renamed, deep))
    assert all(own.values()), "every kind has a case"
    for kind, wanted in own.items():
        assert Counter(str(case.facts) for case in found[kind]) == Counter(str(case.facts) for case in wanted), kind


@pytest.mark.parametrize("renamed", ["{0}", "{1}_other_{0}"])
def test_renamed_expectations_get_their_own_records(tmp_path: Path, renamed: str) -> None:
    root = shuffled(OWN / "selection", tmp_path, renamed, deep=False)
    assert cases(root)["selection_case"]
    for case in cases(root)["selection_case"]:
        found = results(records_of(case), compat=True)
        assert (len(found.sweep.trials), found.sweep.num_records) == (
            case.facts["total_runs"],
            case.facts["total_records"],
        )


def test_copies_count(tmp_path: Path) -> None:
    own = cases(OWN)
    for place in ("a", "b"):
        shuffled(OWN, tmp_path / place, "{0}", deep=True)
    found = cases(tmp_path)
    assert {kind: len(of_kind) for kind, of_kind in found.items()} == {kind: 2 * len(own[kind]) for kind in own}
