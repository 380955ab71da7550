"""`fedhpc stage`: copies on node-local disk that are whole, never in each other's way, and no more than fit."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedhpc.cli import main
from fedhpc.comm.deadline import JOB_END
from fedhpc.commands import stage
from fedhpc.commands._configs import before_copy, load_run
from fedhpc.commands.stage import copy_whole
from fedhpc.data.prepare import prepare, verify
from tests.cli.commands import fedhpc_

Sets = tuple[Path, Path]


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Sets:
    """Two datasets of one name, whose files and folders cannot be written to."""
    folder = tmp_path_factory.mktemp("sets")
    places = folder / "a" / "pacs", folder / "b" / "pacs"
    for place, name in zip(places, ("digits", "rotated_digits"), strict=True):
        prepare(name, None, place)
        for file in place.iterdir():
            file.chmod(0o444)
        place.chmod(0o555)
    return places


def staged(capsys: pytest.CaptureFixture[str], *folders: Path) -> tuple[list[Path], str]:
    """Run the command; return what it printed and what it complained of."""
    with pytest.raises(SystemExit) as ended:
        main(["stage", *map(str, folders)])
    out, err = capsys.readouterr()
    assert ended.value.code == 0, err
    return [Path(line) for line in out.splitlines()], err


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_sets_of_one_name_stand_side_by_side_and_are_used_again(
    sets: Sets, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places, err = staged(capsys, *sets, tmp_path)
    assert err == ""
    assert len(set(places)) == 2
    for place, source in zip(places, sets, strict=True):
        assert place.parent == tmp_path
        assert verify(place) == []
        assert (place / "manifest.json").read_bytes() == (source / "manifest.json").read_bytes()
    before = [place.stat().st_ino for place in places]
    assert staged(capsys, sets[1], tmp_path) == (places[1:], "")
    assert [place.stat().st_ino for place in places] == before, "a job may be reading the other"
    assert names(tmp_path) == sorted(place.name for place in places)


def test_a_copy_of_what_cannot_be_written_to_can_be_removed(sets: Sets, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    assert copy_whole(sets[0], place) is None
    assert all(os.stat(path).st_mode & 0o200 for path in (place, *place.iterdir()))


def test_what_does_not_fit_is_read_where_it_is(
    sets: Sets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    size = sum(f.stat().st_size for f in sets[0].iterdir())
    monkeypatch.setattr(stage.shutil, "disk_usage", lambda path: SimpleNamespace(free=size))
    places, err = staged(capsys, sets[0], tmp_path)
    assert places == [sets[0]]
    assert "GB free" in err
    assert names(tmp_path) == []


def test_a_copy_that_fails_leaves_nothing(sets: Sets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = shutil.copyfile

    def damaged(source: Path, target: Path) -> None:
        copy(source, target)
        if target.suffix != ".json":
            content = bytearray(target.read_bytes())
            content[len(content) // 2] ^= 1
            target.write_bytes(content)

    monkeypatch.setattr(stage.shutil, "copyfile", damaged)
    assert "damaged" in str(copy_whole(sets[0], tmp_path / "copy"))

    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(stage.shutil, "copyfile", full)
    assert "No space left" in str(copy_whole(sets[0], tmp_path / "copy"))
    assert names(tmp_path) == []


def test_half_copies_of_killed_jobs_are_removed_those_of_living_ones_are_not(sets: Sets, tmp_path: Path) -> None:
    dead, living = tmp_path / ".copy-dead", tmp_path / ".copy-living"
    for folder in (dead, living):
        folder.mkdir()
        (folder / "shard").write_text("half")
    handle = os.open(living, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert copy_whole(sets[0], tmp_path / "copy") is None
    finally:
        os.close(handle)
    assert names(tmp_path) == [".copy-living", "copy"]


@pytest.mark.parametrize("victim", ["leftover", "own"])
def test_folders_that_another_job_takes_away_meanwhile_are_no_problem(
    victim: str, sets: Sets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It renames its finished copy, or takes one of ours that is not locked yet for a leftover."""
    leftover = tmp_path / ".copy-other"
    leftover.mkdir()
    taken, opened = [], os.open

    def late(path: Path | str, *rest: Any, **named: Any) -> int:
        name = Path(path).name
        if not taken and name.startswith(".copy-") and (name == leftover.name) is (victim == "leftover"):
            taken.append(name)
            os.rmdir(path)
        return opened(path, *rest, **named)

    monkeypatch.setattr(stage.os, "open", late)
    assert copy_whole(sets[0], tmp_path / "copy") is None
    assert taken
    assert verify(tmp_path / "copy") == []
    assert names(tmp_path) == ["copy"]


def test_a_folder_of_ours_that_is_removed_before_it_is_locked_is_made_again(
    sets: Sets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed, lock = [], fcntl.flock

    def late(handle: int, how: int) -> None:
        if not removed:
            removed.extend(tmp_path.glob(".copy-*"))
            removed[0].rmdir()
        lock(handle, how)

    monkeypatch.setattr(stage.fcntl, "flock", late)
    assert copy_whole(sets[0], tmp_path / "copy") is None
    assert names(tmp_path) == ["copy"]


def test_of_two_jobs_on_a_node_the_slower_takes_the_copy_of_the_faster(
    sets: Sets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "copy"

    def checked(folder: Path) -> list[str]:
        shutil.copytree(sets[0], place)  # meanwhile, the other
        return []

    monkeypatch.setattr(stage, "verify", checked)
    assert copy_whole(sets[0], place) is None
    assert names(tmp_path) == ["copy"]


def test_what_is_no_whole_copy_is_neither_used_nor_deleted(sets: Sets, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    assert copy_whole(sets[0], place) is None
    (place / "manifest.json").unlink()
    left = names(place)
    assert "remove it" in str(copy_whole(sets[0], place))
    assert names(place) == left


def test_a_folder_that_is_no_dataset_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["stage", str(tmp_path), str(tmp_path / "local")])
    assert ended.value.code == 2
    assert "manifest.json" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "study"])
def test_what_a_run_on_a_copy_keeps_goes_on_when_the_copy_is_gone(
    command: str, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next job may be on other nodes, where the command that the run has printed must work."""
    copy, out = tmp_path / "copy", tmp_path / "out"
    assert copy_whole(config.with_name("digits"), copy) is None
    monkeypatch.setenv(JOB_END, str(time.time() + 9))  # less than is kept for the way out: one round
    assert fedhpc_(command, config, "--rounds", 4, "--out", out, "--data.root", copy) == 75
    said = capsys.readouterr().out
    shutil.rmtree(copy)
    monkeypatch.delenv(JOB_END)
    run = out if command == "run" else out / "small-seed0"
    words = ["fedhpc", "run", str(run / "config.yaml"), "--out", str(run), "--resume"]
    assert command == "study" or f"go on with: {shlex.join(words)}" in said
    assert fedhpc_(*words[1:]) == 0
    assert "resuming after round" in capsys.readouterr().out
    assert (run / "done").exists()


def test_other_data_than_the_configuration_s_are_kept_in_mind(config: Path, sets: Sets, tmp_path: Path) -> None:
    words = ["--rounds=1", f"--data.root={sets[0]}"]
    text = config.read_text()
    file = tmp_path / "other.yaml"
    file.write_text(text.replace(str(config.with_name("digits")), str(sets[1])))
    assert before_copy(str(file), words, load_run(str(file), words)).data.root == str(sets[0])
    assert before_copy(str(config), words, load_run(str(config), words)).data.root == str(config.with_name("digits"))
