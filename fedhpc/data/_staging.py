"""A private folder beside the final one: filled, made durable, then renamed; remains of killed writers are cleared."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import socket
import uuid
from pathlib import Path

from fedhpc.data.schema import MANIFEST, shown
from fedhpc.errors import DataRequestError, DatasetError

_MARKER = ".fedhpc-writer"
_OURS = re.compile(r"shard-\d{5}\.h5(\.repack)?|" + re.escape(MANIFEST) + "|" + re.escape(_MARKER))


class Staging:
    """A temporary sibling of `out`, locked for as long as its writer lives.

    Args:
        out: the folder to make. It may exist only if it is empty; nothing is ever deleted from it.

    Raises:
        DatasetError: `out` is in use, or can't be made here.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        refuse_existing(out)
        # A digest instead of the name itself: names may be as long as the file system allows.
        prefix = f".fedhpc-partial-{hashlib.sha256(os.fsencode(out.name)).hexdigest()[:12]}-"
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            _clear_remains(out, prefix)
            self.folder = out.parent / f"{prefix}{uuid.uuid4().hex[:8]}"
            self.folder.mkdir()
            self._lock = os.open(self.folder / _MARKER, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise DatasetError(
                f"{shown(str(out))}: can't be written ({error.strerror}); choose another --out"
            ) from None
        _try_lock(self._lock)
        os.write(self._lock, _marker_text(out))

    def publish(self) -> None:
        """Make everything durable and give the folder its final name, in one step."""
        for path in (*self.folder.iterdir(), self.folder):
            _fsync(path)
        try:
            os.rename(self.folder, self.out)
        except OSError:
            refuse_existing(self.out)  # another writer was faster
            raise
        (self.out / _MARKER).unlink()
        _fsync(self.out.parent)
        os.close(self._lock)

    def discard(self) -> None:
        """Remove the temporary folder."""
        _remove(self.folder)
        os.close(self._lock)


def refuse_existing(out: Path) -> None:
    """Raise DataRequestError unless `out` is free or an empty folder."""
    if not os.path.lexists(out):
        return
    if out.is_dir() and not out.is_symlink():
        if not any(out.iterdir()):
            return
        what = "already holds a dataset" if (out / MANIFEST).exists() else "is a folder with other files in it"
    else:
        what = "exists and is no folder"
    raise DataRequestError(
        f"{shown(str(out))}: {what}; nothing was changed, choose another --out or remove it yourself"
    )


def _clear_remains(out: Path, prefix: str) -> None:
    """Remove what killed writers of the same `out` left: only ours, from this host, with nobody holding the lock."""
    for folder in out.parent.glob(f"{prefix}*"):
        marker = folder / _MARKER
        try:
            if marker.read_bytes() != _marker_text(out):
                continue
            handle = os.open(marker, os.O_RDWR)
        except OSError:
            continue
        try:
            if _try_lock(handle):
                _remove(folder)
        finally:
            os.close(handle)


def _marker_text(out: Path) -> bytes:
    return json.dumps({"out": out.name, "host": socket.gethostname()}).encode("ascii")


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held by a living writer, or a file system without locks: then nobody may judge it dead
        return False
    return True


def _remove(folder: Path) -> None:
    # The marker goes last, so that an interrupted removal is taken up again.
    for path in sorted(folder.iterdir(), key=lambda p: p.name == _MARKER):
        if _OURS.fullmatch(path.name):
            path.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
