"""Checkpoints: atomic, checked when read, keyed by client so that any number of ranks can go on.

A checkpoint is a folder `round-00000012` with `server.safetensors`, one `clients-<rank>.safetensors` per rank that
holds client state, and `meta.json` (written last, with size and SHA-256 of every file). It is made under a temporary
name and renamed when it is complete; older ones are removed only after that.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fedhpc.errors import FedhpcError
from fedhpc.runs.rundir import write_atomically

_META, _SERVER = "meta.json", "server.safetensors"


@dataclass(frozen=True)
class Stored:
    """A complete checkpoint on disk."""

    path: Path
    meta: dict[str, Any]

    @property
    def round(self) -> int:
        """Rounds done when it was written."""
        return int(self.meta["round"])

    def server(self) -> dict[str, Tensor]:
        """The server's tensors."""
        from safetensors.torch import load_file

        return load_file(str(self.path / _SERVER))

    def client_states(self, clients: Iterable[int]) -> dict[int, Tensor]:
        """Flat states of those of the given clients that have one; opens only the files that hold them."""
        from safetensors import safe_open

        wanted: dict[str, list[int]] = {}
        where: Mapping[str, str] = self.meta["clients"]
        for client in clients:
            if (file := where.get(str(client))) is not None:
                wanted.setdefault(file, []).append(client)
        found = {}
        for file, ids in wanted.items():
            with safe_open(str(self.path / file), framework="pt") as handle:
                found.update({client: handle.get_tensor(str(client)) for client in ids})
        return found


class CheckpointFolder:
    """The `checkpoints` folder of a run.

    Args:
        path: the folder; made when the first checkpoint is written.
        keep: how many complete checkpoints stay.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: Path, keep: int) -> None:
        self.path = path
        self._keep = keep

    def _temporary(self, round: int) -> Path:
        return self.path / f".round-{round:08d}.tmp"

    def begin(self, round: int) -> None:
        """Root: make the temporary folder; remains of an interrupted attempt are cleared."""
        temporary = self._temporary(round)
        if temporary.exists():
            shutil.rmtree(temporary)
        temporary.mkdir(parents=True)

    def add_clients(self, round: int, rank: int, states: Mapping[int, Tensor]) -> dict[str, Any] | None:
        """Every rank: write the states of the clients at home here; returns the file's entry for `finish`."""
        if not states:
            return None
        file = self._temporary(round) / f"clients-{rank:05d}.safetensors"
        entry = _save(file, {str(client): flat for client, flat in states.items()})
        return {**entry, "clients": sorted(states)}

    def finish(
        self, round: int, server: Mapping[str, Tensor], entries: Iterable[dict[str, Any]], meta: dict[str, Any]
    ) -> None:
        """Root: write the server's part and the meta file, put the checkpoint in place, remove the oldest."""
        temporary, final = self._temporary(round), self.path / f"round-{round:08d}"
        files = [_save(temporary / _SERVER, server)]
        clients = {}
        for entry in entries:
            clients.update({str(client): entry["file"] for client in entry["clients"]})
            files.append({key: entry[key] for key in ("file", "bytes", "sha256")})
        text = json.dumps({"format": 1, "round": round, "files": files, "clients": clients, **meta})
        write_atomically(temporary / _META, text)
        _sync(temporary)
        _put_in_place(temporary, final)
        _sync(self.path)
        complete = self._complete()
        newer = [path for path in complete if path.name > final.name]  # damaged: the run went back behind them
        for path in newer + complete[len(newer) + self._keep :]:
            shutil.rmtree(path)

    def _complete(self) -> list[Path]:
        """Folders of complete checkpoints, newest first."""
        try:  # not `glob`, to which a folder that cannot be read is empty: the run would begin anew and replace it all
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        paths = (self.path / name for name in names if name.startswith("round-"))
        return sorted((path for path in paths if (path / _META).exists()), reverse=True)

    def latest(self, warn: Callable[[str], None]) -> Stored | None:
        """The newest checkpoint whose files are whole; damaged ones are named and passed over.

        Raises:
            FedhpcError: there are checkpoints but none of them is whole.
            OSError: the folder cannot be read.
        """
        damaged = []
        for path in self._complete():
            problem = _problem(path)
            if problem is None:
                return Stored(path, json.loads((path / _META).read_text(encoding="utf-8")))
            damaged.append(path)
            warn(f"{path}: {problem}; falling back to the checkpoint before it")
        if damaged:
            raise FedhpcError(
                f"{self.path}: no checkpoint is whole ({len(damaged)} damaged); start again with another --out"
            )
        return None


def _save(file: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Write tensors and return name, size and sum of the file."""
    from safetensors.torch import save

    payload = save({name: t.detach().contiguous() for name, t in tensors.items()})
    with file.open("wb") as handle:
        handle.write(payload)
        handle.flush()
        os.fsync(handle.fileno())
    return {"file": file.name, "bytes": len(payload), "sha256": hashlib.sha256(payload).hexdigest()}


def _put_in_place(temporary: Path, final: Path) -> None:
    """Rename. One of the same round, saved before its evaluation say, is found under another name until then."""
    before = final.with_name(f"{final.name}.before")
    if final.exists():
        shutil.rmtree(before, ignore_errors=True)
        os.replace(final, before)
    os.replace(temporary, final)
    shutil.rmtree(before, ignore_errors=True)


def _sync(folder: Path) -> None:
    """Make names in a folder durable; not every file system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def _problem(path: Path) -> str | None:
    """What is wrong with a checkpoint's files, or None."""
    try:
        files = json.loads((path / _META).read_text(encoding="utf-8"))["files"]
        for entry in files:
            file = path / entry["file"]
            if file.stat().st_size != entry["bytes"]:
                return f"{file.name} has {file.stat().st_size} bytes where {entry['bytes']} were written"
            with file.open("rb") as handle:
                if _sha256(handle.read()) != entry["sha256"]:
                    return f"{file.name} is damaged (its checksum differs)"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"unreadable ({error})"
    return None


def _sha256(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()
