"""Client and task counts of FedMedICL in mode compat, and what mode fixed does with the same tables.

Cases come from the folder that `--vectors` names (default: the copies beside this file).
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhpc.data.timeline import Timeline
from fedhpc.medical.kinds import drawn_kinds
from fedhpc.medical.scenarios._compat import TaskSplitter, compat_timeline, split_clients
from tests.golden.fedmedicl_cases import FILE, Case, folder_of, tables
from tests.golden.fedmedicl_replay import runs_in
from tests.golden.fedmedicl_splits import (
    Split,
    classes,
    counted,
    group_keys,
    novel_class_total,
    public_splits,
    split_cases,
)

TASKS = {"train": "train_tasks", "val": "val_tasks", "test": "test_tasks"}
TIMES = {True: 2, False: 12}
"""Old samples for each new one, in the study of a new disease and elsewhere."""


@pytest.fixture(scope="module")
def splits(request: pytest.FixtureRequest) -> list[Split]:
    return split_cases(folder_of(request.config))


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest) -> list[Split]:
    """All cases, for what needs no table."""
    return split_cases(folder_of(request.config), tables_needed=False)


def test_what_lacks_its_table_is_skipped_with_the_reason(told: list[Split], tmp_path: Path) -> None:
    for path in told[0].case[FILE].parent.glob("*.json"):
        shutil.copy(path, tmp_path)
    with pytest.raises(pytest.skip.Exception, match=r"no table \(CSV\)"):
        split_cases(tmp_path)
    assert len(split_cases(tmp_path, tables_needed=False)) == len(told)
    assert all(run["data"] is None for run in runs_in(tmp_path))


def kinds_of(split: Split) -> list[str]:
    train = split.pool("train")
    return split.scenario.client_kinds(13, split.scenario.find_groups(split.table, train).num, split.scenario.clients)


def test_tables_have_the_numbers_of_the_case(splits: list[Split]) -> None:
    for split in splits:
        full, train, case = split.case["full_dataset"], split.pool("train"), split.case
        assert full["train_class"] == counted(classes(split.table)[train]), split.name
        assert full["train_group"] == counted(group_keys(split.table, 1, False)[train]), split.name
        assert case["train_available"] == len(train), split.name
        assert (full["val_n"], full["test_n"]) == (len(split.pool("val")), len(split.pool("test"))), split.name
        assert full["holdout_n"] == full["test_n"]
        if case["params"].get("names"):
            rows = next(rows for _, rows in tables(case[FILE].parent) if rows and "source" in rows[0])
            times = TIMES[bool(case["params"].get("novel"))]
            for part, num in (("train", len(train)), ("val", full["val_n"]), ("test", full["test_n"])):
                assert num == novel_class_total(rows, part, times), split.name


def test_client_kinds_are_the_originals(told: list[Split]) -> None:
    for split in told:
        params = split.case["params"]
        assert len(split.case["clients"]) == params["K"], split.name
        assert [c["client"] for c in split.case["clients"]] == list(range(params["K"]))
        for kinds, num_spare in split.case["scenario_lists"]:
            ratios = params.get("ratios") or {"balanced": 0.2, "spare": 0.2}
            drawn = drawn_kinds(params["K"], ratios, random.Random(params["seed"]))
            assert drawn == [*kinds, *["spare"] * num_spare], split.name


def test_clients_are_as_large_as_the_originals(splits: list[Split]) -> None:
    """With the same numbers of every group (or class), where they are told apart when the clients are made."""
    for split in splits:
        scenario, train = split.scenario, split.pool("train")
        groups = scenario.find_groups(split.table, train)
        clients = split_clients(scenario, groups, train, kinds_of(split), seed=13)
        expected = [client["train"] for client in split.case["clients"]]
        assert [len(rows) for rows in clients] == [e["n"] for e in expected], split.name
        assert sum(map(len, clients)) == split.case["train_total_assigned"]
        if scenario.mixed:
            by_label = scenario.group_by == "label"
            keys = classes(split.table) if by_label else split.group_keys(split.table)
            wanted = [e["class" if by_label else "group"] for e in expected]
            assert [counted(keys[rows]) for rows in clients] == wanted, split.name


def test_clients_and_tasks_on_public_metadata(request: pytest.FixtureRequest) -> None:
    splits = public_splits(folder_of(request.config)) or pytest.skip("no cases on public metadata")
    test_client_kinds_are_the_originals(splits)
    test_clients_are_as_large_as_the_originals(splits)
    test_groups_are_in_the_originals_order(splits)
    test_tasks_have_the_originals_counts(splits)
    for split in splits:
        assert split.case["train_available"] == len(split.pool("train"))
        assert {client["holdout_n"] for client in split.case["clients"]} == {len(split.pool("test"))}


def test_groups_are_in_the_originals_order(splits: list[Split]) -> None:
    for split in splits:
        values = split.scenario.find_groups(split.table, split.pool("train")).values
        expected = [
            tuple("MF".index(v) if isinstance(v, str) else v for v in row)
            for row in split.case["attribute_group_order"]
        ]
        assert list(values) == expected, split.name


def test_counts_of_the_originals_own_clients(splits: list[Split]) -> None:
    """Duplicates, patients in several clients, classes and groups, as a timeline counts them."""
    checked = [split for split in splits if split.rows]
    for split in checked or pytest.skip("no samples of the original's clients"):
        case, table = split.case, split.table
        clients = [split.rows[f"c{c['client']}_train"] for c in case["clients"]]
        whole = Timeline(tuple((rows,) for rows in clients), (), (), np.zeros(0, int), (), np.zeros(0, int), ())
        unique = np.unique(np.concatenate(clients))
        assert len(unique) == case["train_unique_assigned"], split.name
        assert whole.shared_units(table.attributes["unit"]) == case["patients_in_more_than_one_client"], split.name
        assert len(np.unique(table.attributes["unit"][unique])) == case["patients_assigned"]
        for client in case["clients"]:
            number = f"c{client['client']}"
            check_counts(split, split.rows[f"{number}_train"], client["train"])
            for part, key in TASKS.items():
                for task, expected in enumerate(client[key]):
                    rows = split.rows.get(f"{number}_{part}_t{task}")
                    if rows is not None:
                        check_counts(split, rows, expected)


def check_counts(split: Split, rows: np.ndarray, expected: Case) -> None:
    assert len(rows) == expected["n"], split.name
    assert counted(classes(split.table)[rows]) == expected["class"], split.name
    assert counted(split.group_keys(split.table)[rows]) == expected["group"], split.name
    assert len(rows) - len(np.unique(rows)) == expected["dups"], split.name


def test_totals_add_up(told: list[Split]) -> None:
    for split in told:
        case = split.case
        assert case["train_unused"] == case["train_available"] - case["train_unique_assigned"], split.name
        duplicates = case["train_total_assigned"] - case["train_unique_assigned"]
        assert case["train_cross_client_duplicates"] == duplicates, split.name
        for client in case["clients"]:
            assert client["holdout_n"] == case["full_dataset"]["holdout_n"]
            assert client.get("novel_disease", False) == bool(case["params"].get("novel")), split.name
            for entry in (client["train"], *(entry for key in TASKS.values() for entry in client[key])):
                assert sum(entry["class"].values()) == sum(entry["group"].values()) == entry["n"], split.name


def test_tasks_have_the_originals_counts(splits: list[Split]) -> None:
    """From the original's own clients, all task counts that do not depend on which rows are drawn."""
    for split in splits:
        for client, parts in split_tasks(split):
            for part, found in zip(TASKS, parts, strict=True):
                where = f"{split.name} client {client['client']} {part}"
                compare(split, part, found, client[TASKS[part]], where)


def split_tasks(split: Split) -> Iterator[tuple[Case, Any]]:
    """Clients of a case, and the tasks that this package makes of their samples."""
    case, scenario, table = split.case, split.scenario, split.table
    drawn = iter(case["abs_normals_normalised"])
    pools = {"train": split.pool("train"), "validation": split.pool("val"), "test": split.pool("test")}
    groups = scenario.find_groups(table, pools["train"])
    tasks = case["params"]["T"]
    splitter = TaskSplitter(scenario, table, groups, 13, tasks, lambda client, num: np.array(next(drawn)))
    for client in case["clients"]:
        yield client, splitter.client(client["client"], split.client_rows(client), pools)
    assert next(drawn, None) is None


def compare(split: Split, part: str, found: tuple[np.ndarray, ...], expected: list[Case], where: str) -> None:
    kind = type(split.scenario).__name__
    if kind == "GroupIncremental" and part == "train" and not split.rows:
        return  # depends on ages that no number of the case tells
    assert [len(rows) for rows in found] == [task["n"] for task in expected], where
    groups, labels = split.group_keys(split.table), classes(split.table)
    fixed_groups = kind in ("Repeated", "GroupIncremental") or (
        kind == "Localized" and all(len(c["train"]["group"]) == 2 for c in split.case["clients"])
    )
    drawn_whole = not (kind == "Naive" or (kind == "NovelDisease" and part != "train"))
    own = part != "train" or bool(split.rows)  # a client's samples, not others with the same numbers
    for rows, task in zip(found, expected, strict=True):
        assert len(rows) - len(np.unique(rows)) == task["dups"], where
        if fixed_groups or (kind == "ClassIncremental" and own):
            assert counted(groups[rows]) == task["group"], where
        if (kind in ("Repeated", "GroupIncremental", "ClassIncremental") and own) or (
            kind == "NovelDisease" and drawn_whole
        ):
            assert counted(labels[rows]) == task["class"], where
    if not drawn_whole and part != "train":  # tasks cut from all samples: together they are all samples
        for key, keys in (("class", labels), ("group", groups)):
            names = {name for task in expected for name in task[key]}
            total = {name: sum(task[key].get(name, 0) for task in expected) for name in names}
            if key == "class" or not split.case["params"].get("names"):
                assert total == counted(keys[split.pool(part)]), where


def test_naive_test_tasks_are_the_same_for_all_clients(told: list[Split]) -> None:
    for split in told:
        if type(split.scenario).__name__ in ("Naive", "NovelDisease", "Repeated"):
            for key in (TASKS["val"], TASKS["test"]):
                assert all(client[key] == split.case["clients"][0][key] for client in split.case["clients"])


def test_fixed_mode_uses_nothing_twice_and_divides_no_patient(splits: list[Split]) -> None:
    for split in splits:
        if type(split.scenario).__name__ == "Repeated":
            continue
        table = split.stored
        timeline = replace(split.scenario, mode="fixed", holdout="disjoint").timeline(table, seed=13)
        assert set(timeline.duplicates().values()) == {0}, split.name
        assert timeline.shared_units(table.attributes["unit"]) == 0, split.name
        used = sum(len(rows) for part in ("train", "validation", "test") for c in getattr(timeline, part) for rows in c)
        assert used + len(timeline.holdout) + sum(timeline.unused.values()) == table.num_samples, split.name


def test_compat_mode_reports_what_it_leaves(splits: list[Split]) -> None:
    for split in splits:
        if split.scenario.mixed and type(split.scenario).__name__ == "Localized":
            timeline = compat_timeline(split.scenario, split.table, 13)
            expected = pytest.approx(split.case["train_unused"], abs=0.03 * split.case["train_available"])
            assert timeline.unused["train: never drawn"] == expected, split.name
