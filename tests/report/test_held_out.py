"""Environments that are held out together have tables of their own, unless a criterion needs them for others."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from fedhpc.report.domainbed import original_text
from fedhpc.report.results import SweepRecords
from fedhpc.report.selection import Checkpoint, TrialRecords
from fedhpc.report.sweep_json import json_tree
from fedhpc.report.sweep_notes import missing_notes, remarks
from fedhpc.report.sweep_tables import csv_report, explanations, text_report
from fedhpc.report.sweeps import SweepResults, load, results
from fedhpc.sweep.trials import TrialSpec
from tests.report.own_sweep import specs, write_sweep

LABELS = ("a", "b", "c", "d")
SET = (0, 1, 3)
"""Leaves the third environment as the only source."""


def trial(envs: tuple[int, ...], hparams_seed: int, *checkpoints: Checkpoint) -> TrialRecords:
    return TrialRecords(f"{envs}-{hparams_seed}", "own", "erm", envs, hparams_seed, 0, checkpoints)


def swept(*trials: TrialRecords, criteria: tuple[str, ...] = ()) -> SweepResults:
    return results(SweepRecords("test", trials, environments={"own": LABELS}, criteria=criteria))


def joint(found: SweepResults) -> dict[str, dict[int, tuple[int, int, float]]]:
    """By criterion and environment: draw, step and test accuracy of the choice, in the tables of `SET`."""
    return {
        name: {
            cell.test_env: (cell.choices[0].hparams_seed, cell.choices[0].step, cell.choices[0].test)
            for table in tables if table.held_out == SET for cell in table.rows[0].cells
        }
        for name, tables in found.tables.items()
    }  # fmt: skip


def test_the_source_validates_all_and_the_oracle_each_of_its_own() -> None:
    found = swept(
        trial(SET, 0, Checkpoint(0, (0.1, 0.2, 0.9, 0.3), (0.5, 0.1, 0.8, 0.1)),
                      Checkpoint(9, (0.4, 0.5, 0.9, 0.6), (0.7, 0.2, 0.6, 0.2))),
        trial(SET, 1, Checkpoint(0, (0.7, 0.7, 0.9, 0.7), (0.1, 0.3, 0.1, 0.1))),
    )  # fmt: skip
    assert joint(found) == {
        "training_domain_validation": {0: (0, 0, 0.1), 1: (0, 0, 0.2), 3: (0, 0, 0.3)},
        "leave_one_domain_out": {},
        "oracle": {0: (0, 9, 0.4), 1: (1, 0, 0.7), 3: (0, 9, 0.6)},
    }
    tables = {table.held_out: table for table in found.tables["training_domain_validation"]}
    assert [c.figure.mean for c in tables[()].rows[0].cells] == [None] * 4
    assert tables[SET].environments == ("a", "b", "d")
    (evidence,) = tables[SET].rows[0].cells[2].choices[0].evidence
    assert (evidence.environment, evidence.split, evidence.accuracy) == (2, "validation", 0.8)
    assert found.averages["oracle"].rows[0][1][0].mean is None, "they are no part of the averages"


@pytest.mark.parametrize(
    ("envs", "criteria", "tabled"),
    [((0, 1), (), []), ((0, 1), ("oracle",), [(0, 1)]), ((1, 2, 3), ("oracle",), [(1, 2, 3)]), ((1,), (), [])],
)
def test_what_a_criterion_needs_for_others_has_no_table(
    envs: tuple[int, ...], criteria: tuple[str, ...], tabled: list[tuple[int, ...]]
) -> None:
    found = swept(trial(envs, 0, Checkpoint(0, (0.1,) * 4, (0.1,) * 4)), criteria=criteria)
    assert [t.held_out for t in found.tables["oracle"] if t.held_out] == tabled


def test_a_report_shows_them_beside_the_others(tmp_path: Path) -> None:
    joined = [TrialSpec("pacs", "erm", SET, h, t, 5001, 300) for h in range(2) for t in range(2)]
    trials = [*specs(), *joined]
    folder = write_sweep(tmp_path / "x", trials, {"pacs": LABELS}, finished=[t for t in trials if t != joined[2]])
    found = results(load(folder))
    text = text_report(found)
    assert "pacs, a + b + d held out together, selected by training-domain validation set" in text
    assert "held out together, selected by leave-one-domain-out" not in text
    assert [t.split(":")[0].strip() for t in missing_notes(found)[2:]] == [joined[2].id]
    assert "erm on pacs, a + b + d held out together, test environment d, test-domain validation set (oracle):" in list(
        explanations(found)
    )
    trees = [t for t in json_tree(found)["tables"] if t["held_out_together"]]
    assert [(t["criterion"], t["held_out_together"]) for t in trees] == [
        ("training_domain_validation", [0, 1, 3]),
        ("oracle", [0, 1, 3]),
    ]
    assert [cell["test_env"] for cell in trees[0]["rows"][0]["cells"]] == [0, 1, 3]
    held_out = {row["held_out"] for row in csv.DictReader(io.StringIO(csv_report(found)))}
    assert held_out == {"0", "1", "2", "3", "0+1+3"}
    assert "held out together" not in original_text(results(load(folder), compat=True))


def test_a_single_source_alone_is_judged(tmp_path: Path) -> None:
    joined = [TrialSpec("pacs", "erm", SET, 0, 0, 5001, 300)]
    found = results(load(write_sweep(tmp_path / "x", joined, {"pacs": LABELS}, ["oracle"])))
    assert [table.held_out for table in found.tables["oracle"]] == [SET]
    assert not [line for line in remarks(found) if "cannot be judged" in line]
