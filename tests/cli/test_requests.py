"""What the user asks for and the data on disk do not allow: exit code 2, with the key and the remedy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.commands import fedhpc_

MNIST = ("--data.dataset", "mnist", "--data.root")


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """Run a command that is refused; returns its one line."""
    assert fedhpc_(*words) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fedhpc: error:")]
    assert len(lines) == 1
    return lines[0]


def test_data_that_are_not_there_are_named_by_key_and_remedy(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, nowhere, empty = tmp_path / "out", tmp_path / "nowhere", tmp_path / "empty"
    empty.mkdir()
    told = refused(capsys, "run", config, "--out", out, *MNIST, nowhere)
    assert f"data.root {nowhere}: no such folder; `fedhpc prepare mnist --raw RAW --out {nowhere}` makes it" in told
    assert f"data.root {empty}: is no finished dataset folder" in refused(
        capsys, "run", config, "--out", out, *MNIST, empty
    )
    assert "leave the key out: digits is embedded" in refused(
        capsys, "run", config, "--out", out, "--data.root", nowhere
    )
    assert "run `fedhpc prepare` first" in refused(
        capsys, "run", config, "--out", out, "--data.root", "null", *MNIST[:2]
    )
    told = refused(
        capsys, "sweep", "configs/smoke/sweep.yaml", "--out", out, "--sweep.datasets", f"{{pacs: {nowhere}}}"
    )
    assert f"sweep.datasets.pacs {nowhere}: no such folder; `fedhpc prepare pacs --raw RAW" in told


def test_preparing_what_cannot_be_asked_for_is_a_bad_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "digits"
    assert "needs --raw" in refused(capsys, "prepare", "mnist", "--out", out)
    assert "no such file or folder" in refused(capsys, "prepare", "mnist", "--raw", tmp_path / "no", "--out", out)
    assert fedhpc_("prepare", "digits", "--out", out) == 0
    assert "already holds a dataset" in refused(capsys, "prepare", "digits", "--out", out)


def test_a_dataset_of_another_name_is_a_bad_request_and_a_damaged_one_is_not(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "digits"
    assert fedhpc_("prepare", "digits", "--out", data) == 0
    told = refused(capsys, "run", config, "--out", tmp_path / "out", *MNIST, data)
    assert "holds the dataset 'digits', the config asks for 'mnist'; set data.dataset: digits" in told
    shutil.copy(data / "manifest.json", data / "kept")
    (data / "manifest.json").write_text("{")
    assert fedhpc_("run", config, "--out", tmp_path / "out", "--data.root", data) == 1


def test_a_run_to_go_on_with_must_be_named(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--resume needs --out, the directory of the run" in refused(capsys, "run", config, "--resume")
    (tmp_path / "config.yaml").write_text(config.read_text())
    told = refused(capsys, "run", tmp_path)
    assert f"this is a run directory; go on with: fedhpc run {tmp_path}/config.yaml --out {tmp_path} --resume" in told


def test_a_mistake_has_no_traceback(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedhpc_("run", config, "--out", tmp_path / "run", "--cohort.size", "30") == 2
    assert "traceback" not in capsys.readouterr().err
    assert not list((tmp_path / "run" / "log").iterdir())
