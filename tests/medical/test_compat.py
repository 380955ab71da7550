"""Mode `compat`: what the original leaves out or crashes at is told in numbers; its counts are in `tests/golden`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedhpc.data.table import SampleTable
from fedhpc.errors import ConfigError
from tests.medical.scenario_tables import KINDS, TABLE, make, make_table


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mixed", [True, False])
def test_every_sample_is_used_or_counted(kind: str, mixed: bool) -> None:
    options: dict[str, Any] = {"shares": ((0.9, 0.1), (0.1, 0.9)), "tasks": 2} if kind == "group_ratios" else {}
    table = make_table(patients=2000)
    timeline = make(kind, table, mode="compat", mixed=mixed, clients=3, **options)
    tasks = [rows for part in (timeline.train, timeline.validation) for client in part for rows in client]
    used = np.unique(np.concatenate([*tasks, timeline.holdout]))
    assert len(used) + sum(timeline.unused.values()) == table.num_samples
    assert len({len(client) for part in (timeline.train, timeline.test) for client in part}) == 1


def test_a_class_is_the_same_task_for_every_client() -> None:
    order = np.argsort(TABLE.attributes["age"], kind="stable")
    labels = np.empty_like(TABLE.labels)  # the young lack the last classes
    labels[order] = np.sort(TABLE.labels)
    table = SampleTable(labels, TABLE.environment, TABLE.split, TABLE.attributes, TABLE.class_names)
    timeline = make("class_incremental", table, mode="compat", clients=3, kinds=("only:0", "only:1", "balanced"))
    assert timeline.num_tasks == 3
    lacking = 0
    for client in (*timeline.train, *timeline.test):
        assert len(client) == 3
        assert [set(labels[rows]) - {task} for task, rows in enumerate(client)] == [set()] * 3
        lacking += sum(not len(rows) for rows in client)
    assert lacking


def test_a_client_without_a_value_is_refused_where_the_original_crashes() -> None:
    with pytest.raises(ConfigError, match=r"client \d has \d values of age, the training samples 4.*crashes"):
        make("group_incremental", mode="compat", clients=3, kinds=("only:0", "only:1", "balanced"))
