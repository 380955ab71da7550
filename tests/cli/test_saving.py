"""Everything an engine must remember goes to disk and comes back, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fedhpc.commands._saving import RunSaver, restore
from fedhpc.errors import AgreedError, FedhpcError
from fedhpc.federated.host import SumSettings
from fedhpc.runs.checkpoint import CheckpointFolder
from fedhpc.runs.records import RecordWriter
from tests.federated.federation import ALGORITHMS, Federation, norm_federation, same

COHORTS = [[0, 1], [1, 2], [0, 2], [0, 1, 2]]


def build(name: str, rounds: int, **options: Any) -> Federation:
    settings = {"follow_all": True, "target": 0.2, "stop_at_target": False, "evaluate_every": 1, "checkpoint_every": 2}
    return norm_federation(ALGORITHMS[name], cohorts=COHORTS, rounds=rounds, settings=settings, **options)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("buffers", ["average", "keep_local"])
def test_a_restored_engine_goes_on_as_if_nothing_had_been(tmp_path: Path, name: str, buffers: Any) -> None:
    sums = SumSettings(buffers=buffers)
    whole = build(name, 4, sums=sums).run()
    folder = CheckpointFolder(tmp_path / "checkpoints", keep=1)
    with RecordWriter(tmp_path / "metrics.jsonl") as writer:
        first = build(name, 2, sums=sums)
        first.engine._saver = RunSaver(first.world, folder, writer)
        first.run()
    second = build(name, 4, sums=sums)
    assert restore(second.world, second.engine, folder.latest(pytest.fail)) == 0
    saved, fresh = first.engine, second.engine
    assert fresh.progress.round == 2
    assert fresh.progress.seconds_train == saved.progress.seconds_train
    assert fresh.progress.reached == saved.progress.reached
    assert isinstance(fresh.progress.reached, tuple)
    assert saved.server is not None
    assert fresh.server is not None
    assert torch.equal(fresh.server.avg_selected, saved.server.avg_selected)
    assert torch.equal(fresh.server.model("avg_all"), saved.server.model("avg_all"))
    assert (fresh.costs.seconds[:2] == saved.costs.seconds[:2]).all()
    second.run()
    assert len(second.recorder.borders) == 1
    assert same(second.recorder.borders[-1], whole.recorder.borders[-1])
    assert torch.equal(fresh.server.model("avg_all"), whole.engine.server.model("avg_all"))  # type: ignore[union-attr]


def test_without_a_checkpoint_nothing_changes() -> None:
    f = build("scaffold", 2)
    before = f.weights.clone()
    assert restore(f.world, f.engine, None) == 0
    assert torch.equal(f.weights, before)


def test_a_disk_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file in the way")
    with RecordWriter(tmp_path / "metrics.jsonl") as writer:
        f = build("scaffold", 2)
        f.engine._saver = RunSaver(f.world, CheckpointFolder(tmp_path / "checkpoints", keep=1), writer)
        with pytest.raises((FedhpcError, AgreedError), match="cannot write a checkpoint"):
            f.run()
