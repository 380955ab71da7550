"""A run directory: who may write to it, and the files that say what ran and how it ended."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from fedhpc.errors import ConfigError, FedhpcError

CONFIG, ENVIRONMENT, METRICS, DONE = "config.yaml", "environment.json", "metrics.jsonl", "done"
BATCH_FILES = ("job.sh", "log")
"""What `fedhpc submit` leaves in a directory before anything runs there."""
_RUN_FILES = (CONFIG, METRICS, DONE, "checkpoints")
_HELD_BY = {"run": _RUN_FILES, "study": ("study.json",), "sweep": ("plan.json",)}
"""Files by which a directory is known to hold one of these; see `report.collect`."""


def write_atomically(path: Path, text: str) -> None:
    """Write a small file so that it is there whole or not at all, also after a crash."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def default_path(config: str) -> Path:
    """`runs/<config name>-<time>`, for a run without `--out`."""
    return Path("runs") / f"{Path(config).stem}-{time.strftime('%Y%m%d-%H%M%S')}"


def refuse_other(directory: Path, kind: str) -> None:
    """Refuse a directory that holds something else than `kind` (run, study, sweep): reports would see one of the two.

    Raises:
        ConfigError: names what it holds.
    """
    for other, files in _HELD_BY.items():
        if other != kind and any((directory / name).exists() for name in files):
            raise ConfigError(f"{directory}: holds a {other}, not a {kind}; choose another --out")


def in_use(directory: Path) -> bool:
    """Whether a process writes to a run directory; a file system without locks cannot tell, and it seems free."""
    try:
        with (directory / "lock").open(encoding="utf-8") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _lock_patiently(handle: IO[str]) -> None:
    """Take the lock; `in_use` of another process holds it for an instant.

    Raises:
        BlockingIOError: somebody keeps it.
    """
    for _ in range(10):
        with suppress(BlockingIOError):
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(0.02)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


class InUseError(FedhpcError):
    """Another process writes to the directory."""


class RunDirectory:
    """One run's directory, locked by the process that writes to it (root).

    The lock is the kernel's and ends with the process, however it ends.

    Args:
        path: the directory.
        config: text of `config.yaml`, for `begin`.
    """

    def __init__(self, path: Path, config: str = "") -> None:
        self.path = path
        self._config = config
        self._lock: IO[str] | None = None

    def open(self, resume: bool) -> bool:
        """Make or take over the directory; returns whether it holds a run to go on with.

        Raises:
            ConfigError: it holds a run and `resume` is false (nothing is changed), a study or a sweep, or it is no
                directory.
            FedhpcError: another process writes to it, or it cannot be written.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path}: is a file; --out wants a directory")
        refuse_other(self.path, "run")
        holds_run = any((self.path / name).exists() for name in _RUN_FILES)
        if holds_run and not resume:
            raise ConfigError(f"{self.path}: holds a run; add --resume to go on with it, or choose another --out")
        try:
            (self.path / "log").mkdir(parents=True, exist_ok=True)
            self._take_lock()
        except OSError as error:
            raise FedhpcError(f"{self.path}: cannot be written ({error.strerror}); choose another --out") from None
        return holds_run

    def _take_lock(self) -> None:
        handle = (self.path / "lock").open("a+", encoding="utf-8")
        try:
            _lock_patiently(handle)
        except BlockingIOError:
            handle.seek(0)
            owner = handle.read().strip() or "another process"
            handle.close()
            raise InUseError(f"{self.path}: is in use by {owner}; wait for it or stop it") from None
        except OSError:
            pass  # a file system without locks: go on without
        handle.truncate(0)
        handle.write(f"process {os.getpid()} on {os.uname().nodename}\n")
        handle.flush()
        self._lock = handle

    def begin(self) -> None:
        """Write the configuration: from here on the directory holds a run."""
        write_atomically(self.path / CONFIG, self._config)

    def close(self) -> None:
        """Give the lock back."""
        if self._lock:
            self._lock.close()
            self._lock = None

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return (self.path / DONE).exists()

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file atomically."""
        write_atomically(self.path / name, json.dumps(value, indent=1, sort_keys=False) + "\n")

    def read_json(self, name: str) -> Any:
        """Read a JSON file of this directory."""
        return json.loads((self.path / name).read_text(encoding="utf-8"))
