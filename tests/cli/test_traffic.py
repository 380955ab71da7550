"""What a run sent and read is in its records and its report, and counts once however often the run was resumed."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from fedhpc.data.shards import ShardStore
from fedhpc.report.collect import read_run
from tests.cli.commands import fedhpc_

ROUNDS, PARAMETERS = 40, 64 * 8 + 8 + 8 * 10 + 10


def collectives(capsys: pytest.CaptureFixture[str], run: Path) -> dict[str, dict[str, Any]]:
    capsys.readouterr()
    assert fedhpc_("report", run, "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert found["communicate_share"] >= 0
    assert 0 <= found["wait_share"] <= 1
    return {row["collective"]: row for row in found["collectives"]}


def test_bytes_and_calls_add_up_over_a_resumed_run(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    assert fedhpc_("run", config, "--out", run) == 0
    whole = collectives(capsys, run)
    assert whole["reduce"]["calls"] == ROUNDS
    assert whole["reduce"]["bytes"] >= ROUNDS * 2 * PARAMETERS * 8, "SCAFFOLD returns two vectors"
    assert whole["broadcast"]["calls"] >= ROUNDS
    assert 0 <= whole["reduce"]["share"] <= 1
    assert (run / "report" / "traffic.csv").read_text().count("\n") == 1 + len(whole)
    text = (run / "report" / "summary.txt").read_text()
    assert all(f"{what} (" in text for what in ("train", "evaluate", "waiting", "communicating", "reading"))
    fast = read_run(run).read_share
    assert fast is not None
    assert 0 < fast < 1

    (run / "done").unlink()  # as if it had been killed before the last checkpoint
    shutil.rmtree(run / "checkpoints" / "round-00000040")
    pixels = ShardStore._pixels

    def slowly(store: ShardStore, shard: int) -> Any:
        time.sleep(0.01)
        return pixels(store, shard)

    monkeypatch.setattr(ShardStore, "_pixels", slowly)
    assert fedhpc_("run", config, "--out", run, "--resume") == 0
    slow = read_run(run).read_share
    assert slow is not None
    assert slow > 1.2 * fast, "a slow file system shows"
    (again,) = (row for row in read_run(run).collectives if row.collective == "reduce")
    assert (again.calls, again.bytes) == (ROUNDS, whole["reduce"]["bytes"])
