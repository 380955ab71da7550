"""Held-out environments of data with patients: each patient is whole in one part of one environment."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from fedhpc.commands._domains import exam_parts, split_of, with_split
from fedhpc.config import RunConfig
from fedhpc.data.stores import open_store
from fedhpc.data.table import SampleTable
from fedhpc.report.trial_files import VALIDATION


@pytest.fixture(scope="module")
def table() -> SampleTable:
    return open_store("rotated_digits", None).table


def config(unit: str = "unit", **generalize: Any) -> RunConfig:
    return RunConfig.from_dict(
        {
            "rounds": 2,
            "data": {"dataset": "rotated_digits"},
            "partition": {"kind": "by_environment", "unit": unit},
            "generalize": {"test_envs": [1], **generalize},
        }
    )


@pytest.mark.parametrize("stratified", [False, True])
def test_patients_are_whole_in_every_environment_and_none_is_left_out(table: SampleTable, stratified: bool) -> None:
    unit = np.arange(table.num_samples) // 16  # of four samples in each environment
    patients = dataclasses.replace(table, attributes={"unit": unit * table.num_environments + table.environment})
    run = config(stratified=stratified)
    partition = run.partition.split(with_split(run, patients), run.seed)
    assert not partition.notes
    assert partition.unused == (table.environment == 1).sum()
    codes = patients.attributes["unit"]
    for split in split_of(run, patients):
        assert not set(codes[split.inside]) & set(codes[split.outside])
        assert abs(len(split.outside) / (len(split.inside) + len(split.outside)) - 0.2) < 0.05
    alone = dataclasses.replace(table, attributes={"unit": np.arange(table.num_samples)[::-1]})
    for ours, trials in zip(split_of(run, alone), split_of(run, table), strict=True):
        assert sorted(ours.outside) == sorted(trials.outside), "samples that are each their own unit: the trial's split"
    divided = config(unit="")
    assert [len(s.inside) for s in split_of(divided, patients)] == [len(s.inside) for s in split_of(divided, table)]


def test_nobody_validates_who_is_trained_on_in_another_environment(table: SampleTable) -> None:
    before = np.array([3, 1, 0, 2])  # every fourth sample is of a patient of another environment, but for that held out
    starts = np.searchsorted(table.environment, np.arange(table.num_environments))
    place = np.arange(table.num_samples) - starts[table.environment]
    home = np.where(place % 4 == 3, before[table.environment], table.environment)
    units = place // 4 * table.num_environments + home
    several = dataclasses.replace(table, attributes={"unit": units})
    run = config()
    partition = run.partition.split(with_split(run, several), run.seed)
    trained = np.concatenate(partition.train)
    drawn = split_of(run, several)
    assert any(np.isin(units[drawn[e].outside], units[trained]).any() for e in (0, 2, 3))
    asked = [part for part in exam_parts(run, several, partition) if part.what == VALIDATION]
    assert [part.environment for part in asked] == [0, 2, 3]
    for part, tested in zip(asked, partition.test, strict=True):
        assert not np.isin(units[part.indices], units[trained]).any()
        assert set(tested.tolist()) <= set(part.indices.tolist())
