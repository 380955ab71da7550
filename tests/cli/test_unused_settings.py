"""A setting that changes nothing in its combination is told, and no configuration of ours has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedhpc.commands._configs import load_run
from fedhpc.commands._unused import unused_settings
from fedhpc.config import RunConfig, read_yaml

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
RUNS = [path for path in sorted(CONFIGS.rglob("*.yaml")) if "rounds" in read_yaml(str(path))]


def told(**sections: dict[str, Any]) -> list[str]:
    return unused_settings(RunConfig.from_dict({"rounds": 1, "partition": {"kind": "iid", "clients": 2}, **sections}))


@pytest.mark.parametrize(
    ("sections", "lines"),
    [
        ({}, []),
        ({"personalize": {"inner_lr": 0.5}}, ["personalize.inner_lr has no effect with personalize.method: none"]),
        ({"personalize": {"method": "proto", "order": "first", "inner_steps": 1}},
         ["personalize.order has no effect with personalize.method: proto"]),
        ({"personalize": {"method": "maml", "inner_lr": 0.5, "delta": 0.1}},
         ["personalize.delta has no effect with personalize.order: full"]),
        ({"personalize": {"method": "maml", "order": "hessian_free", "delta": 0.1}}, []),
        ({"local": {"optimizer": "adam", "momentum": 0.9}},
         ["local.momentum has no effect with local.optimizer: adam"]),
        ({"generalize": {"stratified": True}}, ["generalize.stratified has no effect without generalize.test_envs"]),
        ({"generalize": {"stratified": True, "test_envs": [0]}}, []),
        ({"local": {"clip": 10.0}}, []),
        ({"algorithm": {"name": "scaffold", "option": 1}, "local": {"clip": 10.0}}, []),
        ({"algorithm": {"name": "scaffold"}, "local": {"clip": 10.0}},
         ["local.clip biases the controls of scaffold where it acts: option 2 reads gradients off the steps"]),
    ],
)  # fmt: skip
def test_what_has_no_effect_is_told(sections: dict[str, Any], lines: list[str]) -> None:
    assert told(**sections) == lines


@pytest.mark.parametrize(
    ("buffers", "frozen", "has_norms", "said"),
    [
        ("average", False, True, None),
        ("keep_local", False, True, "model.safetensors will have the initial"),
        ("keep_local", False, False, "aggregation.buffers: keep_local has no effect"),
        ("keep_global", False, True, "model.freeze_bn: true"),
        ("keep_global", True, True, None),
        ("keep_global", False, None, None),
    ],
)
def test_what_becomes_of_batch_norm_statistics_is_told(
    buffers: str, frozen: bool, has_norms: bool | None, said: str | None
) -> None:
    tree = {"rounds": 1, "partition": {"kind": "iid", "clients": 2}, "aggregation": {"buffers": buffers}}
    found = unused_settings(RunConfig.from_dict({**tree, "model": {"freeze_bn": frozen}}), has_norms)
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


def test_plain_sums_say_what_they_give_up_and_have_no_grid() -> None:
    grid, bits = told(aggregation={"dtype": "float32", "grid_bits": 30})
    assert grid == "aggregation.grid_bits has no effect with aggregation.dtype: float32"
    assert "gives up equal bits" in bits


@pytest.mark.parametrize("path", RUNS, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_no_shipped_configuration_has_a_setting_without_effect(path: Path) -> None:
    found = unused_settings(load_run(str(path)))
    assert [note for note in found if "has no effect" in note] == []
    assert all("biases the controls of scaffold" in note for note in found)
