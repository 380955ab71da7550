"""Disks that fail in the middle of a run: full, over quota, read-only, data gone; nothing that was saved is lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedhpc.commands._saving import RunSaver
from tests.cli.commands import fedhpc_

MB = 1 << 20


def _do(*words: object) -> None:
    """A command of the system; the test is skipped where it is not allowed or not there."""
    command = [str(w) for w in words]
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if os.getuid() != 0 or shutil.which(command[0], path=path) is None:
        pytest.skip(f"needs root and {command[0]}")
    done = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"{' '.join(command)}: {done.stderr.strip()}")


@dataclass
class Disk:
    """A file system of its own, with what breaks it and what mends it."""

    folder: Path
    says: str
    fail: Callable[[], None]
    mend: Callable[[], None]


def _fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file:
        for size in (64 << 10, 4 << 10, 512):
            try:
                while file.tell() < 8 * MB:
                    file.write(bytes(size))
            except OSError:
                continue
            raise AssertionError("nothing keeps this disk from growing")


def _full(folder: Path) -> Disk:
    _do("mount", "-t", "tmpfs", "-o", f"size={MB}", "tmpfs", folder)
    return Disk(folder, "No space left on device", lambda: _fill(folder), (folder / "filler").unlink)


def _over_quota(folder: Path) -> Disk:
    image = folder.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(128 * MB)
    _do("mkfs.btrfs", "-q", image)
    _do("mount", "-o", "loop", image, folder)
    _do("btrfs", "quota", "enable", folder)
    _do("btrfs", "subvolume", "create", folder / "mine")
    _do("btrfs", "qgroup", "limit", str(MB), folder / "mine")

    def mend() -> None:
        (folder / "mine" / "filler").unlink()
        _do("btrfs", "filesystem", "sync", folder)

    return Disk(folder / "mine", "Disk quota exceeded", lambda: _fill(folder / "mine"), mend)


def _read_only(folder: Path) -> Disk:
    """Names are looked up in a mount that cannot be written; files that are open already still can be."""

    def fail() -> None:
        _do("mount", "--bind", folder, folder)
        _do("mount", "-o", "remount,bind,ro", folder)

    fail()  # where that is not allowed the test is skipped now: amid a run a skip would be an error of the run
    _do("umount", folder)
    return Disk(folder, "Read-only file system", fail, lambda: _do("umount", folder))


def _broken(folder: Path) -> Disk:
    """After an error a file system turns itself read-only under all files that are open."""
    image = folder.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(16 * MB)
    _do("mkfs.ext4", "-q", image)
    _do("mount", "-o", "loop,errors=remount-ro", image, folder)
    (device,) = (line.split()[0] for line in Path("/proc/mounts").read_text().splitlines() if f" {folder} " in line)
    trigger = Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error"
    if not os.access(trigger, os.W_OK):
        pytest.skip(f"{trigger}: cannot be written")

    def mend() -> None:
        _close_all_in(folder)
        _do("umount", folder)
        _do("mount", "-o", "loop", image, folder)

    return Disk(folder, "Read-only file system", lambda: trigger.write_text("test"), mend)


def _close_all_in(folder: Path) -> None:
    """What a run that failed leaves to the end of its process, which is that of the tests here."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith(f"{folder}/"):
                os.close(int(name))


KINDS = {"full": _full, "over quota": _over_quota, "read-only": _read_only, "broken": _broken}


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        yield KINDS[request.param](folder)
    finally:
        _close_all_in(folder)
        while os.path.ismount(folder):
            subprocess.run(["umount", "-l", folder], check=True)


def _after_a_save(monkeypatch: pytest.MonkeyPatch, happen: Callable[[], None]) -> None:
    """Let something happen once, right after the first checkpoint."""
    save, left = RunSaver.save, [happen]

    def save_and_more(self: RunSaver, *args: object) -> None:
        save(self, *args)  # type: ignore[arg-type]
        if left:
            left.pop()()

    monkeypatch.setattr(RunSaver, "save", save_and_more)


@pytest.fixture(scope="module")
def undisturbed(config: Path) -> str:
    out = config.with_name("undisturbed")
    assert fedhpc_("run", config, "--out", out) == 0
    return _sha(out)


def _sha(run: Path) -> str:
    found = json.loads((run / "done").read_text())["weights_sha256"]
    assert isinstance(found, str)
    return found


def test_a_run_ends_with_what_is_wrong_and_goes_on_when_it_is_mended(
    disk: Disk,
    config: Path,
    undisturbed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = disk.folder / "run"
    _after_a_save(monkeypatch, disk.fail)
    assert fedhpc_("run", config, "--out", run) == 1
    said = capsys.readouterr().err
    (line,) = (text for text in said.splitlines() if text.startswith("fedhpc: error"))
    assert disk.says in line
    assert str(run) in line
    assert "run again with --resume" in line
    assert not (run / "done").exists()
    disk.mend()
    assert fedhpc_("run", config, "--out", run, "--resume") == 0
    assert "resuming after round 10" in capsys.readouterr().out
    assert _sha(run) == undisturbed


def test_data_that_vanish_when_they_are_open_are_read_on(
    config: Path, undisturbed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "digits"
    shutil.copytree(config.with_name("digits"), data)
    _after_a_save(monkeypatch, lambda: shutil.rmtree(data))
    words = ["run", config, "--out", tmp_path / "run", "--data.root", data]
    assert fedhpc_(*words) == 0
    assert not data.exists()
    assert _sha(tmp_path / "run") == undisturbed


def test_data_that_cannot_be_reached_are_not_called_missing(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dead mount is no reason to prepare the data again; a link to itself fails like one, for every user."""
    dead = tmp_path / "dead"
    dead.symlink_to(dead)
    assert fedhpc_("run", config, "--out", tmp_path / "run", "--data.root", dead) == 1
    assert fedhpc_("submit", config, "--scheduler", "slurm", "--dry-run", "--data.root", dead) == 1
    assert fedhpc_("stage", dead, tmp_path / "copy") == 2
    said = capsys.readouterr().err
    assert said.count("dead: cannot be read (Too many levels of symbolic links)") == 3
    assert "prepare" not in said
