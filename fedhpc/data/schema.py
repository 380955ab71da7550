"""The layout of a dataset on disk: a folder of immutable HDF5 shards and a manifest, written last.

A shard holds, row for row, `images` uint8 [n, H, W, C] (one contiguous block, so that ranks can memory-map it),
`labels` int32 [n], `environment` int32 [n], `split` uint8 [n], `path` (UTF-8 strings) and `attributes/<name>` (int32
codes or float32 numbers). Every HDF5 dataset carries the SHA-256 of its bytes in the attribute `sha256`; the file
carries `format` and `version`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedhpc.errors import DataRequestError, DatasetError

FORMAT = "fedhpc-dataset"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"

IMAGES, LABELS, ENVIRONMENT, SPLIT, PATH, ATTRIBUTES = "images", "labels", "environment", "split", "path", "attributes"
COLUMNS = {LABELS: "<i4", ENVIRONMENT: "<i4", SPLIT: "|u1"}
CATEGORY_TYPE, NUMBER_TYPE = "<i4", "<f4"

SPLITS = ("train", "validation", "test", "holdout")
UNASSIGNED = 255
"""Split code of a sample whose source knows no split."""
MISSING_CATEGORY = -1

MAX_LISTED = 1000
"""How many skipped files a manifest lists by name; the count is always complete."""

_SPLIT_NAMES = {
    **{name: code for code, name in enumerate(SPLITS)},
    "training": 0,
    "val": 1,
    "valid": 1,
    "dev": 1,
    "testing": 2,
}


def split_code(folder_name: str) -> int | None:
    """Return the split that a folder of this name holds by convention (`train`, `val`, `test`, ...), else None."""
    return _SPLIT_NAMES.get(folder_name.lower())


def shown(path: str) -> str:
    """Return a path fit for a log line: control characters and undecodable bytes escaped, everything else as it is."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in path)


@dataclass(frozen=True)
class ShardEntry:
    """One shard as the manifest knows it.

    Attributes:
        file: file name inside the dataset folder.
        num_samples: rows.
        bytes: size of the file.
        images_offset: byte at which the pixels start.
    """

    file: str
    num_samples: int
    bytes: int
    images_offset: int


@dataclass(frozen=True)
class BadFile:
    """A sample that can't be used, and why."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{shown(self.path)}: {self.reason}"


@dataclass(frozen=True)
class Manifest:
    """What a dataset folder holds.

    Attributes:
        name: the source that it was made with.
        classes: class index -> name, in code point order of the names unless the source defines an order.
        environments: environment index -> name.
        height: of every image.
        width: of every image.
        channels: of every image.
        pixel_max: the value of a white pixel (255; 16 for the embedded digits).
        attributes: name -> {"values": [...]} for categories, {} for numbers.
        shards: in the order that defines the global sample index.
        num_samples: rows of all shards.
        num_skipped: files left out under `on_bad="skip"`.
        skipped: the first of them.
        notes: what the source had to say about the raw files.
        fedhpc: version of the package that wrote it.
    """

    name: str
    classes: tuple[str, ...]
    environments: tuple[str, ...]
    height: int
    width: int
    channels: int
    shards: tuple[ShardEntry, ...]
    num_samples: int
    pixel_max: int = 255
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    num_skipped: int = 0
    skipped: tuple[BadFile, ...] = ()
    notes: tuple[str, ...] = ()
    fedhpc: str = ""

    @property
    def sample_shape(self) -> tuple[int, int, int]:
        """(height, width, channels)."""
        return self.height, self.width, self.channels

    @property
    def sample_bytes(self) -> int:
        """Bytes of one image."""
        return self.height * self.width * self.channels

    def to_dict(self) -> dict[str, Any]:
        """Return plain containers, as in manifest.json."""
        return {"format": FORMAT, "version": FORMAT_VERSION, **_plain(asdict(self))}

    def to_json(self) -> str:
        """Return the text of manifest.json, with its own checksum. ASCII only: any file name survives."""
        content = self.to_dict()
        return json.dumps({**content, "sha256": content_sum(content)}, indent=1) + "\n"

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], where: str = MANIFEST) -> Manifest:
        """Build a manifest from plain containers.

        Raises:
            DatasetError: not a manifest, or of another version; `where` names the file in the message.
        """
        if content.get("format") != FORMAT:
            raise DatasetError(f"{where}: not the manifest of a dataset folder; make one with `fedhpc prepare`")
        if content.get("version") != FORMAT_VERSION:
            raise DatasetError(
                f"{where}: format version {content.get('version')!r}, this fedhpc reads version {FORMAT_VERSION}; "
                "prepare the dataset again from its raw files"
            )
        try:
            return cls(
                name=str(content["name"]),
                classes=tuple(map(str, content["classes"])),
                environments=tuple(map(str, content["environments"])),
                height=int(content["height"]),
                width=int(content["width"]),
                channels=int(content["channels"]),
                shards=tuple(ShardEntry(**entry) for entry in content["shards"]),
                num_samples=int(content["num_samples"]),
                pixel_max=int(content["pixel_max"]),
                attributes={str(k): dict(v) for k, v in content["attributes"].items()},
                num_skipped=int(content["num_skipped"]),
                skipped=tuple(BadFile(**entry) for entry in content["skipped"]),
                notes=tuple(map(str, content["notes"])),
                fedhpc=str(content["fedhpc"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DatasetError(f"{where}: damaged manifest ({error!r}); prepare the dataset again") from None


def content_sum(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest's content, which must not hold the sum itself."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def read_manifest_dict(root: Path) -> dict[str, Any]:
    """Read manifest.json of a dataset folder as plain containers.

    Raises:
        DataRequestError: no such folder, or no manifest in it.
        DatasetError: the manifest cannot be read or is no JSON.
    """
    path = root / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        what = "no such folder" if not root.exists() else f"no {MANIFEST} in it, so not a finished dataset folder"
        raise DataRequestError(f"{shown(str(root))}: {what}; make one with `fedhpc prepare`") from None
    except OSError as error:
        raise DatasetError(f"{shown(str(path))}: can't be read ({error.strerror})") from None
    except ValueError as error:
        raise DatasetError(f"{shown(str(path))}: damaged manifest ({error}); prepare the dataset again") from None
    if not isinstance(content, dict):
        raise DatasetError(f"{shown(str(path))}: not the manifest of a dataset folder; make one with `fedhpc prepare`")
    return content


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value
