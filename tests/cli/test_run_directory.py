"""The life of a run directory: begun once, stopped and resumed to the same bits, never overwritten."""

from __future__ import annotations

import json
import os
import shlex
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fedhpc import registry
from tests.cli.commands import fedhpc_


def done(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "done").read_text())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def evaluations(folder: Path) -> list[tuple[int, float]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(r["round"], r["value"]) for r in lines if r["what"] == "client_accuracy_mean"]


@pytest.fixture(scope="module")
def whole(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from beginning to end."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert fedhpc_("run", config, "--out", folder) == 0
    return folder


def test_a_run_leaves_what_the_manual_promises(whole: Path) -> None:
    found = done(whole)
    assert found["rounds"] == 40
    assert 0.4 < found["final_client_accuracy"] <= 1
    assert found["time_to_accuracy"] is None
    assert found["seconds_train"] > 0
    assert found["seconds_evaluate"] > 0
    assert len(found["weights_sha256"]) == 64
    for name in (
        "config.yaml",
        "environment.json",
        "metrics.jsonl",
        "partition.json",
        "trace.json",
        "model.safetensors",
    ):
        assert (whole / name).stat().st_size > 0, name
    assert sorted(p.name for p in (whole / "checkpoints").iterdir()) == ["round-00000030", "round-00000040"]
    assert [r for r, _ in evaluations(whole)] == list(range(0, 41, 4))
    assert evaluations(whole)[-1][1] == pytest.approx(found["final_client_accuracy"])


def test_a_run_whose_trace_cannot_be_written_is_complete_all_the_same(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    (folder / "trace.json" / "in the way").mkdir(parents=True)
    assert fedhpc_("run", config, "--out", folder, "--rounds", "1") == 0
    assert done(folder)["rounds"] == 1
    assert "no trace.json: Is a directory" in capsys.readouterr().err


def test_the_sum_is_that_of_the_saved_model(whole: Path) -> None:
    import hashlib

    import torch
    from safetensors.torch import load_file

    from fedhpc.models.base import ModelOptions

    saved = load_file(str(whole / "model.safetensors"))
    model = registry.load("fedhpc.models", "mlp").MODEL((1, 8, 8), 10, ModelOptions(hidden=(8,)))
    model.load_state_dict(saved)
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    assert hashlib.sha256(flat.numpy().astype("<f4").tobytes()).hexdigest() == done(whole)["weights_sha256"]


def test_a_second_run_into_the_directory_is_refused_and_changes_nothing(
    whole: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(whole)
    assert fedhpc_("run", config, "--out", whole) == 2
    assert "add --resume" in capsys.readouterr().err
    assert contents(whole) == before


def test_resuming_a_finished_run_says_so(whole: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {k: v for k, v in contents(whole).items() if k != "lock"}
    assert fedhpc_("run", config, "--out", whole, "--resume") == 0
    assert "finished" in capsys.readouterr().out
    assert {k: v for k, v in contents(whole).items() if k != "lock"} == before


def test_another_configuration_is_refused_with_the_keys_that_differ(
    whole: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = ["--local.lr", "0.1", "--seed", "3"]
    assert fedhpc_("run", config, "--out", whole, "--resume", *changed) == 2
    shown = capsys.readouterr().err
    assert "local.lr: 0.2 there, 0.1 now" in shown
    assert "seed: 0 there, 3 now" in shown


def test_resume_with_nothing_saved_begins_at_round_0(whole: Path, config: Path, tmp_path: Path) -> None:
    assert fedhpc_("run", config, "--out", tmp_path / "run", "--resume") == 0
    assert done(tmp_path / "run")["weights_sha256"] == done(whole)["weights_sha256"]


def test_what_changes_no_bit_may_differ_on_resume(whole: Path, config: Path) -> None:
    before = contents(whole)
    words = ["--placement=pinned", "--server.hosts_clients=false", "--data.memory=copy", "--checkpoint.every=3"]
    assert fedhpc_("run", config, "--out", whole, "--resume", *words) == 0
    assert {**contents(whole), "lock": b""} == {**before, "lock": b""}


def test_placement_does_not_change_a_bit(whole: Path, config: Path, tmp_path: Path) -> None:
    assert fedhpc_("run", config, "--out", tmp_path / "run", "--placement", "pinned") == 0
    assert done(tmp_path / "run")["weights_sha256"] == done(whole)["weights_sha256"]


def signal_after(folder: Path, lines: int, number: int) -> threading.Thread:
    """Send this process a signal once a run has written some records."""

    def wait() -> None:
        end = time.monotonic() + 60
        metrics = folder / "metrics.jsonl"
        while time.monotonic() < end:
            if metrics.exists() and metrics.read_bytes().count(b"\n") >= lines:
                os.kill(os.getpid(), number)
                return
            time.sleep(0.001)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.parametrize(("number", "lines"), [(signal.SIGUSR1, 60), (signal.SIGTERM, 200), (signal.SIGINT, 1)])
def test_stopped_by_a_signal_and_resumed_is_the_same_run(
    whole: Path, config: Path, tmp_path: Path, number: int, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    slow = ["--checkpoint.every", "0"]
    sender = signal_after(folder, lines, number)
    code = fedhpc_("run", config, "--out", folder, *slow)
    sender.join()
    assert code == 75
    assert not (folder / "done").exists()
    shown = capsys.readouterr().out
    command = shown.partition(f"({signal.Signals(number).name}); go on with: fedhpc ")[2]
    assert fedhpc_(*shlex.split(command)) == 0
    assert done(folder)["weights_sha256"] == done(whole)["weights_sha256"]
    assert evaluations(folder) == evaluations(whole)


def test_a_truncated_checkpoint_falls_back_with_a_warning_to_the_same_bits(
    whole: Path, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "done").unlink()
    damaged = folder / "checkpoints" / "round-00000040" / "server.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-10])
    assert fedhpc_("run", config, "--out", folder, "--resume") == 0
    shown = capsys.readouterr()
    assert "round-00000040" in shown.err
    assert "falling back" in shown.err
    assert "resuming after round 30" in shown.out
    assert done(folder)["weights_sha256"] == done(whole)["weights_sha256"]
    assert evaluations(folder) == evaluations(whole)


def test_other_data_under_the_same_name_are_refused(
    whole: Path, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "done").unlink()
    facts = json.loads((folder / "partition.json").read_text())
    (folder / "partition.json").write_text(json.dumps({**facts, "data": "0" * 64}))
    before = contents(folder)
    assert fedhpc_("run", config, "--out", folder, "--resume") == 2
    said = capsys.readouterr().err
    assert "began with other data than data.root holds now (partition.json: 00000000 there, " in said
    assert "or with a version of fedhpc that tells data apart otherwise" in said
    assert contents(folder).keys() == before.keys() - {"done"} | {"failed"}
    assert (folder / "metrics.jsonl").read_bytes() == before["metrics.jsonl"]


def test_a_target_ends_the_run_and_is_reported(config: Path, tmp_path: Path) -> None:
    options = ["--evaluate.target_accuracy", "0.3", "--evaluate.every", "1"]
    assert fedhpc_("run", config, "--out", tmp_path / "run", *options) == 0
    found = done(tmp_path / "run")
    reached = found["time_to_accuracy"]
    assert reached["round"] == found["rounds"] < 40
    assert reached["seconds"] == pytest.approx(found["seconds_train"])
    assert found["final_client_accuracy"] >= 0.3


def test_clients_that_all_diverge_end_the_run_with_their_names(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedhpc_("run", config, "--out", tmp_path / "run", "--local.lr", "1e30") == 1
    shown = capsys.readouterr()
    assert "3 of 3 clients diverged in round 1 (client " in shown.err
    assert "begin anew with a lower local.lr or with local.clip: --resume would diverge again" in shown.err
    assert "Traceback" not in shown.err
    assert fedhpc_("report", tmp_path / "run", "--out", tmp_path / "report") == 0
    said = "".join(capsys.readouterr())
    assert "failed: 3 of 3 clients diverged in round 1" in said
    assert "go on with" not in said
