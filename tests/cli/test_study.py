"""`fedhpc study` where nothing is to be run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedhpc.commands._configs import load_run
from fedhpc.config import plan_study
from tests.cli.commands import fedhpc_

RUN = "rounds: 8\ndata: {dataset: digits}\npartition: {kind: iid, clients: 2}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "run.yaml").write_text(RUN)
    (tmp_path / "s.yaml").write_text("runs: [run.yaml]\nvary: {local.lr: [0.1, 0.2]}\nsettings: {rounds: 3}\n")
    return tmp_path / "s.yaml"


def test_what_would_be_run_is_shown(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    (out / "run-lr0.2-seed1").mkdir(parents=True)
    (out / "run-lr0.2-seed1" / "done").write_text("{}")
    assert fedhpc_("study", file, "--out", out, "--seeds=[0,1]", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["run-lr0.1-seed0", "seed", "0", "missing"]
    assert lines[2].split() == ["run-lr0.2-seed1", "seed", "1", "done"]
    assert lines[4:] == ["4 runs planned, 1 done, 3 remain"]
    assert fedhpc_("study", file, "--out", out, "--seeds=[0,1]", "--status", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [found[state] for state in ("done", "running", "failed", "missing")] == [1, 0, 0, 3]
    assert fedhpc_("study", file, "--dry-run") == 0
    assert [path.name for path in out.iterdir()] == ["run-lr0.2-seed1"], "nothing is written"


@pytest.mark.parametrize(("held", "kind"), [("config.yaml", "run"), ("plan.json", "sweep")])
@pytest.mark.parametrize("words", [[], ["--dry-run"], ["--status"]])
def test_a_directory_that_holds_something_else_is_refused(
    file: Path, tmp_path: Path, held: str, kind: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / held).write_text("{}")
    assert fedhpc_("study", file, "--out", tmp_path / "out", *words) == 2
    assert f"holds a {kind}, not a study; choose another --out" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == [held]


def test_a_printed_study_plans_the_same_runs(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--seeds=[0,1]", "--local.momentum=0.5", "--model.hidden=[8]", "--model.name=mlp"]
    assert fedhpc_("study", file, *words, "--print_config") == 0
    (tmp_path / "other").mkdir()
    shown = tmp_path / "other" / "shown.yaml"
    shown.write_text(capsys.readouterr().out)
    assert plan_study([str(shown)], [], load_run) == plan_study([str(file)], words, load_run)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "needs --out"),
        (["--status"], "needs --out"),
        (["--out", "x", "--json"], "--json goes with --status"),
        (["--dry-run", "--seed=3"], "--seeds"),
        (["--dry-run", "--local.lr=1"], "--local.lr: "),
    ],
)
def test_bad_usage(file: Path, words: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedhpc_("study", file, *words) == 2
    assert named in capsys.readouterr().err


def test_a_run_that_fails_ends_neither_the_study_nor_another_run_of_that_name(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["study", file, "--out", out, "--seeds=[0]", "--local.steps=1", "--device.threads=1"]
    (out / "run-lr0.1-seed0").mkdir(parents=True)
    kept = out / "run-lr0.1-seed0" / "config.yaml"
    kept.write_text(RUN)  # of another configuration
    assert fedhpc_(*words, "--dry-run") == 2
    assert "run-lr0.1-seed0: holds a run of another configuration (" in capsys.readouterr().err
    assert fedhpc_(*words) == 1
    said = capsys.readouterr().err
    assert "refused: run-lr0.1-seed0; change what the errors above name" in said
    assert "the same command tries" not in said
    assert (out / "run-lr0.2-seed0" / "done").exists(), "the other run is done"
    assert kept.read_text() == RUN
    assert not (out / "run-lr0.1-seed0" / "failed").exists()


def test_a_study_of_which_every_run_is_refused_is_bad_usage(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("run-lr0.1-seed0", "run-lr0.2-seed0"):
        (tmp_path / "out" / name).mkdir(parents=True)
        (tmp_path / "out" / name / "config.yaml").write_text(RUN)  # of another configuration
    assert fedhpc_("study", file, "--out", tmp_path / "out", "--seeds=[0]", "--local.steps=1") == 2
    assert "0 of 2 runs done" in capsys.readouterr().out
