"""A short lock between jobs: who creates a file exclusively holds it, as with claims; locks of the kernel do not reach
across nodes on all file systems.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedhpc.sweep.workers import has_ended, process_facts

_STALE_AFTER = 60.0
"""Seconds for which one and the same owner is seen before it counts as dead; a lock is held for a few."""
_PAUSE = 0.05


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold a lock; waits for its owner, and takes it over from one that has died.

    Args:
        file: the lock; its folder exists.

    Raises:
        OSError: the file cannot be made.
    """
    mine = json.dumps({**process_facts(), "token": uuid.uuid4().hex})
    seen, since = "", time.monotonic()
    while not _create(file, mine):
        owner = _read(file)
        if owner != seen:
            seen, since = owner, time.monotonic()
        if time.monotonic() - since > _STALE_AFTER or (owner and has_ended(json.loads(owner))):
            _put_away(file, owner)
        time.sleep(_PAUSE)
    try:
        yield
    finally:
        if _read(file) == mine:
            file.unlink(missing_ok=True)


def _create(file: Path, content: str) -> bool:
    try:
        handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except FileExistsError:
        return False
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write(content)
    return True


def _read(file: Path) -> str:
    """Who holds a lock; empty if nobody does, or if it is just being made."""
    try:
        text = file.read_text(encoding="utf-8")
        json.loads(text)
        return text
    except (OSError, ValueError):
        return ""


def _put_away(file: Path, owner: str) -> None:
    """Remove a dead owner's lock. Who removes another's by mistake, since somebody was faster, gives it back."""
    aside = file.with_name(f"{file.name}.{uuid.uuid4().hex}")
    with suppress(OSError):
        os.rename(file, aside)
        if _read(aside) != owner:
            os.link(aside, file)
    aside.unlink(missing_ok=True)
