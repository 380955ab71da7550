"""A run directory has one writer, refuses what would destroy a run, and its small files are whole or absent."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Timer

import pytest

from fedhpc.errors import ConfigError, FedhpcError
from fedhpc.runs.rundir import RunDirectory, default_path, in_use, write_atomically

RUN_FILES = ["config.yaml", "metrics.jsonl", "done", "checkpoints"]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_new_directory_is_made_with_its_log_folder(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "first"
    assert RunDirectory(path).open(resume=False) is False
    assert (path / "log").is_dir()


@pytest.mark.parametrize("name", RUN_FILES)
def test_a_directory_that_holds_a_run_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    with pytest.raises(ConfigError, match=r"holds a run; add --resume"):
        RunDirectory(tmp_path).open(resume=False)
    assert contents(tmp_path) == {name: b"precious"}
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(("file", "kind"), [("study.json", "study"), ("plan.json", "sweep")])
@pytest.mark.parametrize("resume", [False, True])
def test_a_directory_that_holds_a_study_or_a_sweep_takes_no_run(
    tmp_path: Path, file: str, kind: str, resume: bool
) -> None:
    (tmp_path / file).write_text("{}")
    with pytest.raises(ConfigError, match=f"holds a {kind}, not a run; choose another --out"):
        RunDirectory(tmp_path).open(resume)
    assert contents(tmp_path) == {file: b"{}"}


@pytest.mark.parametrize("name", RUN_FILES)
def test_resume_takes_it_over(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    assert RunDirectory(tmp_path).open(resume=True) is True
    assert (tmp_path / name).read_text() == "precious"


def test_other_files_do_not_make_a_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert RunDirectory(tmp_path).open(resume=True) is False
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_text("x")
    with pytest.raises(ConfigError, match="is a file"):
        RunDirectory(file).open(resume=False)
    assert file.read_text() == "x"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(FedhpcError, match=r"file/run: cannot be written .*choose another --out"):
        RunDirectory(tmp_path / "file" / "run").open(resume=False)


def test_a_second_writer_is_refused_with_the_first_ones_name(tmp_path: Path) -> None:
    first, second = RunDirectory(tmp_path / "run"), RunDirectory(tmp_path / "run")
    first.open(resume=False)
    with pytest.raises(FedhpcError, match=rf"in use by process {os.getpid()} on "):
        second.open(resume=True)
    first.close()
    first.close()
    second.open(resume=True)
    with pytest.raises(FedhpcError, match="in use by"):
        first.open(resume=True)


def test_the_lock_ends_with_its_process_however_it_ends(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from fedhpc.runs.rundir import RunDirectory\n"
        "d = RunDirectory(Path(sys.argv[1])); d.open(False); print('up', flush=True); time.sleep(60)"
    )
    path = tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    with pytest.raises(FedhpcError, match=f"process {process.pid} "):
        RunDirectory(path).open(resume=True)
    process.kill()
    process.communicate()
    RunDirectory(path).open(resume=True)


def test_small_files_are_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "done"
    write_atomically(path, "old")
    write_atomically(path, "new ü")
    assert path.read_text(encoding="utf-8") == "new ü"
    with monkeypatch.context() as patch:

        def full(handle: int) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            write_atomically(path, "half")
    assert contents(tmp_path) == {"done": "new ü".encode()}


def test_json_files_come_back_and_say_the_end(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    assert not directory.finished
    directory.write_json("done", {"rounds": 3, "time_to_accuracy": None})
    assert directory.finished
    assert directory.read_json("done") == {"rounds": 3, "time_to_accuracy": None}


def test_default_names_say_which_configuration_and_when() -> None:
    assert default_path("configs/smoke/fedavg.yaml").match(f"runs/fedavg-{time.strftime('%Y%m%d')}-*")


def test_a_look_at_whether_a_run_is_going_on_does_not_turn_a_job_away(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        Timer(0.05, lambda: fcntl.flock(looking, fcntl.LOCK_UN)).start()
        directory = RunDirectory(tmp_path)
        directory.open(resume=True)
    assert in_use(tmp_path)
    directory.close()
    assert not in_use(tmp_path)
