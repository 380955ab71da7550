"""The scenarios on real tables: nothing twice, no patient or lesion divided, everything accounted for.

CheXpert's table is not among the shared materials: `CHEXPERT_TABLE=train.csv` names one.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from fedhpc.data.table import SampleTable
from fedhpc.data.timeline import PARTS
from fedhpc.errors import ConfigError
from tests.medical.real_tables import CLIENTS, GROUPS, OTHERS, accounted, chexpert_table, equal_groups, ham_table, make


@pytest.fixture(scope="module")
def ham(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SampleTable:
    shared: Path = request.getfixturevalue("shared_data")
    folder = tmp_path_factory.mktemp("ham")
    shutil.copy(shared / "skin" / "HAM10000_metadata", folder)
    return ham_table(folder)


def check(table: SampleTable, **options: Any) -> None:
    timeline = make(table, **options)
    assert timeline.num_clients == options.get("clients", 10)
    if options.get("kind") != "repeated":
        assert set(timeline.duplicates().values()) == {0}
    assert timeline.shared_units(table.attributes["unit"], PARTS) == 0
    assert accounted(timeline) == table.num_samples


@pytest.mark.parametrize("clients", CLIENTS)
@pytest.mark.parametrize("groups", GROUPS)
def test_laws_on_ham10000(ham: SampleTable, clients: int, groups: str) -> None:
    options = GROUPS[groups]
    check(ham, clients=clients, **options)
    num = {"2 ages": 2, "3 ages": 3, "5 ages": 5, "age x sex": 4, "sex": 2}[groups]
    assert len(make(ham, "naive", clients=3, **options).group_names) == num


@pytest.mark.parametrize("name", OTHERS)
def test_other_scenarios_and_kinds_of_clients_on_ham10000(ham: SampleTable, name: str) -> None:
    check(ham, **OTHERS[name])


def test_equal_groups_on_ham10000(ham: SampleTable) -> None:
    table = equal_groups(ham)
    assert table.num_samples < ham.num_samples
    check(table)


def test_one_group_clients_hold_one_group(ham: SampleTable) -> None:
    timeline = make(ham, **OTHERS["clients of one group"])
    for client, group in ((0, 0), (1, 1), (2, 1)):
        found = [set(timeline.group[rows]) for rows in timeline.train[client]]
        assert found == [{group}] * timeline.num_tasks


def test_nine_lesions_of_two_sites_have_one_client_each(ham: SampleTable) -> None:
    timeline = make(ham, **OTHERS["clients by site"])
    assert timeline.notes[0].startswith("9 units have samples in several environments")
    sites = [{int(ham.environment[rows[0]]) for rows in tasks} for tasks in timeline.train]
    assert set.union(*sites) == {0, 1, 2, 3}
    assert all(len(found) == 1 for found in sites)


def test_more_clients_than_lesions_allow_fail_with_the_numbers(ham: SampleTable) -> None:
    with pytest.raises(ConfigError, match=r"client \d+ .* has \d+"):
        make(ham, clients=3000)


def test_laws_on_chexpert() -> None:
    path = os.environ.get("CHEXPERT_TABLE")
    if not path:
        pytest.skip("CHEXPERT_TABLE names no table of CheXpert")
    table = chexpert_table(Path(path))
    assert table.num_samples > 200_000
    for clients in (3, 50):
        for options in (GROUPS["2 ages"], GROUPS["age x sex"]):
            check(table, clients=clients, **options)
    check(equal_groups(table))
