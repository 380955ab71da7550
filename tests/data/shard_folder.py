"""A small dataset folder of several shards, for tests that read or damage it."""

from __future__ import annotations

import json
from pathlib import Path

from fedhpc.data.writer import ShardWriter
from tests.raw_layouts import pixels

NUM, SHAPE = 50, (6, 5, 3)
IMAGES = pixels(3, NUM, *SHAPE)


def write(out: Path, shard_rows: int = 7) -> Path:
    with ShardWriter(
        out,
        name="t",
        classes=["a", "b", "c"],
        environments=["e", "f"],
        shape=SHAPE,
        expected=NUM,
        attributes={"sex": ("F", "M"), "age": None},
        shard_bytes=shard_rows * IMAGES[0].nbytes,
    ) as writer:
        for i, image in enumerate(IMAGES):
            attributes: dict[str, str | float | None] = {"sex": "FM"[i % 2] if i % 5 else None, "age": float(i)}
            writer.add(image, label=i % 3, environment=i % 2, split=255, path=f"{i}.png", attributes=attributes)
    return out


def change_manifest(root: Path, **changes: object) -> None:
    path = root / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x55
    path.write_bytes(content)
