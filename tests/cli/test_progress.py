"""What a run prints while it goes, and what `fedhpc list` names, against what is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fedhpc.commands import _sink, prepare
from tests.cli.commands import fedhpc_


def test_an_accuracy_is_shown_with_the_round_it_belongs_to(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_sink, "_QUIET_SECONDS", 0.0)
    run = tmp_path / "run"
    assert fedhpc_("run", config, "--out", run, "--rounds", "9") == 0
    shown = capsys.readouterr().out
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    means = {r["round"]: f"{r['value']:.4f}" for r in records if r["what"] == "client_accuracy_mean"}
    assert f"round 1/9  accuracy {means[0]} before training" in shown
    told = dict(re.findall(r"round (\d+)/9  accuracy ([\d.]+ after round \d+)", shown))
    assert told == {str(r): f"{means[(r - 1) // 4 * 4]} after round {(r - 1) // 4 * 4}" for r in range(5, 10)}
    assert f"done after round 9, mean client accuracy {means[9]}" in shown


def test_a_log_tells_how_far_and_how_fast_a_dataset_is_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prepare, "_QUIET_SECONDS", 0.0)
    assert fedhpc_("prepare", "digits", "--out", tmp_path / "digits") == 0
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert re.fullmatch(r"1 of 1,797 samples, \d+ images/s, \d+ min left", lines[0])
    assert re.fullmatch(r"1,797 of 1,797 samples, \d+ images/s, 0 min left", lines[1796])
    assert re.search(r" \d+ images/s$", shown.out.strip())
    monkeypatch.undo()
    assert fedhpc_("prepare", "digits", "--out", tmp_path / "again") == 0
    assert "min left" not in capsys.readouterr().err, "a minute apart"


def test_list_names_what_keys_allow_beside_plug_ins(capsys: pytest.CaptureFixture[str]) -> None:
    assert fedhpc_("list") == 0
    kinds = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert kinds["criteria"] == "leave_one_domain_out, oracle, training_domain_validation"
    assert kinds["personalisations"] == "none, maml, proto"
    assert kinds["optimizers"] == "sgd, adam"
    assert kinds["schedulers"] == "slurm, pbs, lsf, flux"
    assert fedhpc_("list", "schedulers") == 0
    assert capsys.readouterr().out.split() == ["slurm", "pbs", "lsf", "flux"]
