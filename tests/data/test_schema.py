from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedhpc.data.schema import (
    FORMAT_VERSION,
    BadFile,
    Manifest,
    ShardEntry,
    content_sum,
    read_manifest_dict,
    shown,
    split_code,
)
from fedhpc.errors import DatasetError

MANIFEST = Manifest(
    name="x",
    classes=("gämma-猫", "bad\udcff", "line\nbreak"),
    environments=("e",),
    height=2,
    width=3,
    channels=1,
    shards=(ShardEntry("shard-00000.h5", 4, 2000, 512),),
    num_samples=4,
    attributes={"age": {}, "sex": {"values": ["F", "M"]}},
    num_skipped=1,
    skipped=(BadFile("a\udcfe.jpg", "empty file"),),
    notes=("note",),
    fedhpc="0",
)


def test_manifest_survives_json_with_any_name() -> None:
    content = json.loads(MANIFEST.to_json().encode("ascii"))
    stated = content.pop("sha256")
    assert stated == content_sum(content)
    assert Manifest.from_dict(content) == MANIFEST


def test_checksum_depends_on_every_value() -> None:
    content = MANIFEST.to_dict()
    changed = json.loads(json.dumps(content))
    changed["attributes"]["sex"]["values"][0] = "G"
    assert content_sum(changed) != content_sum(content)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "other"}, "not the manifest"),
        ({"version": FORMAT_VERSION + 1}, "format version 2, this fedhpc reads version 1"),
        ({"classes": None}, "damaged manifest"),
        ({"shards": [{"file": "x"}]}, "damaged manifest"),
        ({"height": "tall"}, "damaged manifest"),
        ({"attributes": [1]}, "damaged manifest"),
    ],
)
def test_other_manifests_are_refused(change: dict[str, object], told: str) -> None:
    with pytest.raises(DatasetError, match=told) as caught:
        Manifest.from_dict({**MANIFEST.to_dict(), **change}, where="here/manifest.json")
    assert "here/manifest.json" in str(caught.value)


@pytest.mark.parametrize("content", ["", "{", "[1]", "\0\0"])
def test_files_that_are_no_manifest(tmp_path: Path, content: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(DatasetError, match=r"manifest\.json"):
        read_manifest_dict(tmp_path)


def test_missing_folder_and_unfinished_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no such folder.*fedhpc prepare"):
        read_manifest_dict(tmp_path / "gone")
    with pytest.raises(DatasetError, match=r"no manifest\.json in it"):
        read_manifest_dict(tmp_path)


def test_shown_escapes_only_what_a_terminal_could_not_take() -> None:
    assert shown("ünï-カメラ 100%.jpg") == "ünï-カメラ 100%.jpg"
    assert shown("a\nb\x1b[31m\udcff") == r"a\nb\x1b[31m\udcff"


@pytest.mark.parametrize(("folder", "code"), [("train", 0), ("VAL", 1), ("test", 2), ("holdout", 3), ("cat", None)])
def test_split_code(folder: str, code: int | None) -> None:
    assert split_code(folder) == code
