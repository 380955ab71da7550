"""A checkpoint is there whole or not at all, and damage to the newest costs only the newest."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedhpc.errors import FedhpcError
from fedhpc.runs.checkpoint import CheckpointFolder, Stored

META = {"progress": {"round": 0}, "metrics_bytes": 17}


def server(round: int) -> dict[str, Tensor]:
    return {"vector.weights": torch.full((5,), round / 3, dtype=torch.float64), "counters": torch.empty(0)}


def states(round: int, *clients: int) -> dict[int, Tensor]:
    return {c: torch.full((3,), 100.0 * round + c) for c in clients}


def write(folder: CheckpointFolder, round: int) -> None:
    folder.begin(round)
    entries = [folder.add_clients(round, 0, states(round, 0, 2)), folder.add_clients(round, 1, states(round, 1))]
    folder.finish(round, server(round), [e for e in entries if e], META)


def latest(folder: CheckpointFolder) -> tuple[Stored | None, list[str]]:
    warnings: list[str] = []
    return folder.latest(warnings.append), warnings


def names(path: Path) -> list[str]:
    return sorted(p.name for p in path.iterdir())


def test_everything_comes_back(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "checkpoints", keep=2)
    write(folder, 7)
    stored, warnings = latest(folder)
    assert stored is not None
    assert warnings == []
    assert (stored.round, stored.meta["metrics_bytes"]) == (7, 17)
    assert torch.equal(stored.server()["vector.weights"], server(7)["vector.weights"])
    assert stored.server()["vector.weights"].dtype == torch.float64
    found = stored.client_states(range(4))
    assert {c: v.tolist() for c, v in found.items()} == {0: [700.0] * 3, 1: [701.0] * 3, 2: [702.0] * 3}


def test_clients_come_back_by_id_whatever_rank_wrote_them(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=2)
    write(folder, 1)
    stored, _ = latest(folder)
    assert stored is not None
    (tmp_path / "round-00000001" / "clients-00000.safetensors").unlink()  # only what is asked for is opened
    assert list(stored.client_states([1, 9])) == [1]


def test_a_rank_without_states_writes_no_file(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=2)
    folder.begin(1)
    assert folder.add_clients(1, 3, {}) is None
    folder.finish(1, server(1), [], META)
    stored, _ = latest(folder)
    assert stored is not None
    assert stored.client_states(range(3)) == {}
    assert names(stored.path) == ["meta.json", "server.safetensors"]


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert latest(CheckpointFolder(tmp_path / "checkpoints", keep=2)) == (None, [])


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    """The run would begin anew, and its first checkpoint would replace those of later rounds."""
    folder = tmp_path / "checkpoints"
    folder.symlink_to(folder)  # fails like a dead mount, for every user
    with pytest.raises(OSError, match="checkpoints"):
        CheckpointFolder(folder, keep=1).latest(pytest.fail)


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_stay(tmp_path: Path, keep: int) -> None:
    folder = CheckpointFolder(tmp_path, keep)
    for round in (2, 9, 10, 100):
        write(folder, round)
    assert names(tmp_path) == [f"round-{r:08d}" for r in (2, 9, 10, 100)[-keep:]]


def test_an_interrupted_attempt_is_no_checkpoint_and_keeps_the_one_before(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=1)
    write(folder, 1)
    folder.begin(2)
    folder.add_clients(2, 0, states(2, 0))
    stored, warnings = latest(folder)
    assert stored is not None
    assert stored.round == 1
    assert warnings == []
    write(folder, 2)  # the next attempt clears the remains
    stored, _ = latest(folder)
    assert stored is not None
    assert names(tmp_path) == ["round-00000002"]
    assert stored.client_states([1])[1].tolist() == [201.0] * 3


def test_a_full_disk_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CheckpointFolder(tmp_path, keep=1)
    write(folder, 1)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(folder, 2)
    stored, _ = latest(folder)
    assert stored is not None
    assert stored.round == 1


def test_the_old_ones_go_only_when_the_new_one_is_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CheckpointFolder(tmp_path, keep=1)
    write(folder, 1)
    seen: list[list[str]] = []
    real = os.replace

    def watched(source: Any, target: Any) -> None:
        seen.append([n for n in names(tmp_path) if n.startswith("round-")])
        real(source, target)

    monkeypatch.setattr(os, "replace", watched)
    write(folder, 2)
    assert seen == [["round-00000001"]] * 2  # once for the meta file, once for the folder


DAMAGE = {
    "truncated": lambda p: p.write_bytes(p.read_bytes()[:-3]),
    "flipped": lambda p: p.write_bytes(p.read_bytes()[:-1] + bytes([p.read_bytes()[-1] ^ 1])),
    "missing": lambda p: p.unlink(),
    "empty": lambda p: p.write_bytes(b""),
    "a folder": lambda p: (p.unlink(), p.mkdir()),
}


@pytest.mark.parametrize("file", ["server.safetensors", "clients-00001.safetensors", "meta.json"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_falls_back_to_the_one_before(tmp_path: Path, file: str, damage: str) -> None:
    folder = CheckpointFolder(tmp_path, keep=2)
    write(folder, 1)
    write(folder, 2)
    DAMAGE[damage](tmp_path / "round-00000002" / file)
    stored, warnings = latest(folder)
    assert stored is not None
    assert stored.round == 1
    if (damage, file) != ("missing", "meta.json"):  # without its last file it is not complete at all
        assert len(warnings) == 1
        assert "round-00000002" in warnings[0]
        assert "falling back" in warnings[0]


@pytest.mark.parametrize("text", ["[]", "3", '{"files": [{}]}', '{"files": 3}', "{}", '{"files": []', "\xff"])
def test_a_meta_file_that_makes_no_sense_is_damage(tmp_path: Path, text: str) -> None:
    folder = CheckpointFolder(tmp_path, keep=2)
    write(folder, 1)
    write(folder, 2)
    (tmp_path / "round-00000002" / "meta.json").write_bytes(text.encode("latin-1"))
    stored, warnings = latest(folder)
    assert stored is not None
    assert stored.round == 1
    assert len(warnings) == 1


def test_when_none_is_whole_the_run_does_not_begin_anew_in_silence(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=2)
    write(folder, 1)
    DAMAGE["truncated"](tmp_path / "round-00000001" / "server.safetensors")
    with pytest.raises(FedhpcError, match=r"no checkpoint is whole \(1 damaged\)"):
        latest(folder)
    assert (tmp_path / "round-00000001" / "server.safetensors").exists()


@pytest.mark.parametrize("keep", [1, 2])
def test_a_damaged_newer_one_does_not_push_out_what_is_written_after_it(tmp_path: Path, keep: int) -> None:
    # Back at round 1 after round 2 was found damaged, the run is stopped again at round 1 or 2.
    folder = CheckpointFolder(tmp_path, keep)
    write(folder, 3)
    DAMAGE["flipped"](tmp_path / "round-00000003" / "server.safetensors")
    write(folder, 2)
    stored, _ = latest(folder)
    assert stored is not None
    assert stored.round == 2


def test_a_whole_checkpoint_of_the_same_round_is_never_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Resumed and stopped again before a round was done: at no moment may the only checkpoint be missing.
    folder = CheckpointFolder(tmp_path, keep=1)
    write(folder, 2)
    seen: list[int | None] = []

    def watch(module: Any, name: str) -> None:
        real = getattr(module, name)

        def watched(*args: Any, **options: Any) -> None:
            real(*args, **options)
            stored, warnings = latest(folder)
            assert warnings == []
            seen.append(None if stored is None else stored.round)

        monkeypatch.setattr(module, name, watched)

    watch(shutil, "rmtree")
    watch(os, "replace")
    write(folder, 2)
    assert len(seen) >= 3
    assert set(seen) == {2}
    assert names(tmp_path) == ["round-00000002"]


def test_of_two_of_one_round_the_later_counts(tmp_path: Path) -> None:
    """A run that stops after an evaluation saves the round that it was resumed from once more: with its scores."""
    folder = CheckpointFolder(tmp_path, keep=1)
    write(folder, 2)
    folder.begin(2)
    folder.finish(2, server(3), [], {**META, "metrics_bytes": 99})
    stored, _ = latest(folder)
    assert stored is not None
    assert stored.meta["metrics_bytes"] == 99
    assert torch.equal(stored.server()["vector.weights"], server(3)["vector.weights"])


def test_a_damaged_one_of_the_same_round_is_replaced(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=1)
    write(folder, 2)
    DAMAGE["flipped"](tmp_path / "round-00000002" / "clients-00000.safetensors")
    write(folder, 2)
    stored, warnings = latest(folder)
    assert stored is not None
    assert warnings == []
    assert stored.client_states([0])[0].tolist() == [200.0] * 3


def test_meta_file_names_every_file_with_size_and_sum(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=1)
    write(folder, 4)
    meta = json.loads((tmp_path / "round-00000004" / "meta.json").read_text())
    assert meta["format"] == 1
    assert [f["file"] for f in meta["files"]] == [
        "server.safetensors",
        "clients-00000.safetensors",
        "clients-00001.safetensors",
    ]
    assert all(f["bytes"] == (tmp_path / "round-00000004" / f["file"]).stat().st_size for f in meta["files"])
    assert meta["clients"] == {
        "0": "clients-00000.safetensors",
        "2": "clients-00000.safetensors",
        "1": "clients-00001.safetensors",
    }


def test_no_pickle_is_read(tmp_path: Path) -> None:
    # A checkpoint may come from somebody else: a pickle in its place is damage or an error, and never runs.
    folder = CheckpointFolder(tmp_path, keep=1)
    write(folder, 1)
    stored, _ = latest(folder)
    assert stored is not None

    class Bomb:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.mkdir, (str(tmp_path / "bomb"),)

    torch.save({"vector.weights": Bomb()}, stored.path / "server.safetensors")
    with pytest.raises(Exception, match=r"(?i)header|safetensor|deserializ"):
        stored.server()
    assert not (tmp_path / "bomb").exists()
