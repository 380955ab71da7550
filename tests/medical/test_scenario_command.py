"""`fedhpc scenario` prints, writes and plots a timeline, and refuses what is not possible."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from fedhpc.cli import main
from tests.conftest import REPOSITORY

CONFIG = str(REPOSITORY / "configs" / "smoke" / "medical" / "cb.yaml")


def call(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["scenario", *words])
    return int(stopped.value.code or 0)


def test_table_accounts_for_every_sample(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(CONFIG) == 0
    text = capsys.readouterr().out
    assert "5 clients, 4 tasks; groups 0: 0-59; 1: 60+" in text
    numbers = [int(w.strip(",")) for w in text.split("samples:")[1].splitlines()[0].split() if w.strip(",").isdigit()]
    assert sum(numbers) == 735
    assert "not used: none" in text


def test_files_and_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(CONFIG, "--out", str(tmp_path / "out"), "--contrast", "--scenario.groups", "[age,sex]") == 0
    tree = json.loads((tmp_path / "out" / "scenario.json").read_text())
    assert sorted(tree["groups"]) == ["0-59, sex F", "0-59, sex M", "60+, sex F", "60+, sex M"]
    contrasts = json.loads((tmp_path / "out" / "contrast.json").read_text())["medical_digits"]
    assert sum(map(len, contrasts.values())) == 735
    mean = {name: sum(values) / len(values) for name, values in contrasts.items()}
    assert mean["60+, sex F"] < mean["0-59, sex F"]  # the made-up old patients are dimmer
    for name in ("scenario.png", "scenario.svg", "contrast.png", "scenario.txt"):
        assert (tmp_path / "out" / name).stat().st_size > 100


def test_clients_tasks_groups_and_classes_are_counted_together(tmp_path: Path) -> None:
    assert call(CONFIG, "--out", str(tmp_path), "--scenario.groups", "[age,sex]") == 0
    tree = json.loads((tmp_path / "scenario.json").read_text())
    lines = list(csv.DictReader((tmp_path / "scenario.csv").open(encoding="utf-8", newline="")))
    assert sum(int(line["samples"]) for line in lines) == 735
    row = tree["rows"][5]
    own = [line for line in lines if line["client"] == str(row["client"]) and line["task"] == str(row["task"] + 1)]
    own = [line for line in own if line["part"] == row["part"]]
    for group, counts in zip(tree["groups"], row["per_group_and_class"], strict=True):
        found = {line["class"]: int(line["samples"]) for line in own if line["group"] == group}
        assert found == {name: n for name, n in zip(tree["classes"], counts, strict=True) if n}
    assert [sum(counts) for counts in row["per_group_and_class"]] == row["per_group"]
    assert [sum(counts) for counts in zip(*row["per_group_and_class"], strict=True)] == row["per_class"]
    held = sum(int(line["samples"]) for line in lines if line["part"] == "hold-out")
    assert held == tree["holdout"]["num"]


def test_json_is_the_same_as_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(CONFIG, "--json", "--out", str(tmp_path)) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "scenario.json").read_text())


def test_of_a_study_the_first_run_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    smoke = REPOSITORY / "configs" / "smoke"
    assert call(str(smoke / "medical.yaml"), "--scenario.clients", "3") == 0
    shown = capsys.readouterr()
    assert "3 clients, 4 tasks" in shown.out
    assert "a study of 16 runs, this is erm-seed0" in shown.err
    (tmp_path / "study.yaml").write_text(f"runs: [{smoke / 'fedavg.yaml'}]\n")
    assert call(str(tmp_path / "study.yaml")) == 2
    assert "is no medical run" in capsys.readouterr().err
    assert call("configs/smoke/fedavg.yaml") == 2
    assert "configs/smoke/fedavg.yaml: is no medical run (no section scenario)" in capsys.readouterr().err


def test_too_many_clients_end_with_code_2_and_the_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(CONFIG, "--scenario.clients", "200") == 2
    assert "training samples for 4 tasks" in capsys.readouterr().err
