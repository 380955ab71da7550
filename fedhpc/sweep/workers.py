"""Workers of a sweep as they see each other: a file per process whose age is its heartbeat."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WORKERS = "workers"
_ROOM = 1024
"""Bytes of a worker's file: of one length, it can be written over in place, and is read whole or before or after."""
_JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")


class Worker:
    """This process as others see it.

    Args:
        folder: the sweep's folder.
        heartbeat: seconds between signs of life.
        label: further facts to tell (rank, ...).
        hang_seconds: a worker at a trial that takes no step for so long stops beating, so that others may take the
            trial over; 0: never.
    """

    def __init__(self, folder: Path, heartbeat: float, label: Mapping[str, Any], hang_seconds: float = 0.0) -> None:
        self.facts = {**process_facts(), **label}
        self.name = f"{self.facts['host']}-{os.getpid()}-{uuid.uuid4().hex[:8]}".replace("/", "_")
        self._path = folder / WORKERS / self.name
        self._heartbeat, self._hang_seconds = heartbeat, hang_seconds
        self._doing: Mapping[str, Any] = {}
        self._ticked = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Write the file and begin to beat."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_bytes(self._content())
        self._thread.start()

    def tick(self, **doing: Any) -> None:
        """Note progress, and what others are told about it at the next heartbeat; nothing: it has no trial."""
        self._ticked, self._doing = time.monotonic(), doing

    @property
    def hangs(self) -> bool:
        """Whether it has a trial but takes no steps."""
        return bool(self._doing) and 0 < self._hang_seconds < time.monotonic() - self._ticked

    def stop(self) -> None:
        """Stop beating and remove the file: this worker holds nothing any more."""
        self._stop.set()
        self._thread.join()
        self._path.unlink(missing_ok=True)

    def now(self) -> float:
        """The file system's idea of the present, by a beat: clocks of different machines need not agree."""
        os.utime(self._path)
        return self._path.stat().st_mtime

    def _beat(self) -> None:
        while not self._stop.wait(self._heartbeat):
            if self.hangs:
                continue
            try:
                handle = os.open(self._path, os.O_WRONLY)
                try:
                    os.pwrite(handle, self._content(), 0)
                finally:
                    os.close(handle)
            except OSError:
                continue  # the file system is away for a moment; others notice the silence

    def _content(self) -> bytes:
        return (json.dumps({**self.facts, **self._doing}).ljust(_ROOM) + "\n").encode()


def process_facts() -> dict[str, Any]:
    """What tells whether this process still runs: host, number, start, and the machine in which the number counts."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
        "machine": _machine(),
        "job": next((os.environ[name] for name in _JOB_VARIABLES if name in os.environ), None),
    }


def _started(pid: int) -> str | None:
    """When a process began, in the kernel's ticks; None if it has ended or the system does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]  # a zombie has ended


def _machine() -> str | None:
    """Boot and process namespace; process numbers mean the same only where both are equal."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def has_ended(facts: Mapping[str, Any], machine: str | None = None) -> bool:
    """Whether `process_facts` are of a process of this machine that is known to be gone.

    Args:
        facts: what the process told of itself; may be empty.
        machine: this one, if it is known already.
    """
    here = machine or _machine()
    if here is None or facts.get("machine") != here or facts.get("started") is None:
        return False
    return _started(facts["pid"]) != facts["started"]


class Watcher:
    """Judges whether workers live: their heartbeat is young, and they are not processes of this machine that ended.

    Args:
        folder: the sweep's folder.
        stale_after: seconds of silence after which a worker counts as dead.
    """

    def __init__(self, folder: Path, stale_after: float) -> None:
        self._folder = folder / WORKERS
        self._stale_after = stale_after
        self._machine = _machine()
        self._facts: dict[str, dict[str, Any]] = {}

    def is_alive(self, worker: str, now: float) -> bool:
        """Whether a worker lives at a moment of the file system's clock."""
        try:
            if now - (self._folder / worker).stat().st_mtime > self._stale_after:
                return False
        except OSError:
            return False  # it left in order
        return not has_ended(self._facts_of(worker), self._machine)

    def living(self, now: float) -> list[dict[str, Any]]:
        """What the workers that live last told about themselves."""
        names = sorted(os.listdir(self._folder)) if self._folder.is_dir() else []
        return [self._read(name) for name in names if not name.startswith(".") and self.is_alive(name, now)]

    def anyone_but(self, worker: str, now: float) -> bool:
        """Whether any other worker lives."""
        others = (name for name in os.listdir(self._folder) if name != worker and not name.startswith("."))
        return any(self.is_alive(name, now) for name in others)

    def _facts_of(self, worker: str) -> dict[str, Any]:
        if worker not in self._facts:
            found = self._read(worker)
            if not found:
                return found
            self._facts[worker] = found
        return self._facts[worker]

    def _read(self, worker: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self._folder / worker).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}  # gone, or just being written
        return found
