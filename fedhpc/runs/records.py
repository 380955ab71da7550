"""metrics.jsonl: one measured value a line, appended by root, read by everything that comes after.

A line is a JSON object: `what`, `value` (a number, or null for "could not be measured"), `unit`, `round` (rounds done),
`seconds` (the training clock), and where it belongs: `client`, `environment`, `task`, `model`, `rank`, `host`,
`collective`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from fedhpc.errors import FedhpcError

_LARGEST = 1e300
_WHERE = ("client", "environment", "task", "model", "rank", "host", "collective")


@dataclass(frozen=True)
class Record:
    """One value.

    Attributes:
        what: name of the quantity, such as `client_accuracy`.
        value: the number; None where there is none (an infinite one or NaN becomes None when it is written).
        unit: such as `fraction`, `seconds`, `bytes`.
        round: rounds done when it was measured; 0 is before training.
        seconds: the training clock at that moment.
        client: number of the client it belongs to, if it belongs to one; likewise the rest.
        environment: number of the environment.
        task: number of the task.
        model: name of the evaluated model, such as `broadcast_next`.
        rank: number of the rank.
        host: name of the node.
        collective: what the ranks did together, such as `broadcast`.
    """

    what: str
    value: float | None
    unit: str
    round: int
    seconds: float
    client: int | None = None
    environment: int | None = None
    task: int | None = None
    model: str | None = None
    rank: int | None = None
    host: str | None = None
    collective: str | None = None

    def to_line(self) -> str:
        """The record as one line of JSON, without the line's end."""
        value = self.value if self.value is not None and math.isfinite(self.value) else None
        fields: dict[str, Any] = {"what": self.what, "value": value, "unit": self.unit, "round": self.round}
        fields["seconds"] = round(self.seconds, 6)
        fields.update((name, at) for name in _WHERE if (at := getattr(self, name)) is not None)
        return json.dumps(fields, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> Record:
        """Read one line; keys that are not known here are left out.

        Raises:
            ValueError: not a record; the message says what is wrong.
        """
        found = json.loads(line, parse_constant=_no_constant)
        if not isinstance(found, dict):
            raise ValueError("is not a JSON object")
        for name, (types, optional) in _TYPES.items():
            value = found.get(name)
            if name not in found and not optional:
                raise ValueError(f"has no '{name}'")
            if not (value is None and (optional or name == "value")) and type(value) not in types:
                raise ValueError(f"'{name}' is {value!r:.40}")
            if isinstance(value, (int, float)) and not abs(value) <= _LARGEST:
                raise ValueError(f"'{name}' is out of range")
        return cls(**{name: found[name] for name in _TYPES if name in found})


_TYPES: dict[str, tuple[tuple[type, ...], bool]] = {
    "what": ((str,), False),
    "value": ((int, float), False),
    "unit": ((str,), False),
    "round": ((int,), False),
    "seconds": ((int, float), False),
    "client": ((int,), True),
    "environment": ((int,), True),
    "task": ((int,), True),
    "model": ((str,), True),
    "rank": ((int,), True),
    "host": ((str,), True),
    "collective": ((str,), True),
}


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


class RecordWriter:
    """Appends records to a file; what was written since the last `flush` is lost if the process dies.

    Lines reach the file whole, in one write per flush; if the disk is full, the part that got through is taken back.
    """

    def __init__(self, path: Path) -> None:
        """Open `path` for appending, creating it if it is missing."""
        self.path = path
        self._lines: list[str] = []
        with _writing(path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._size = os.lseek(self._file, 0, os.SEEK_END)

    def write(self, record: Record) -> None:
        """Keep one record for the next flush."""
        self._lines.append(record.to_line())

    def write_all(self, records: Iterable[Record]) -> None:
        """Keep several records for the next flush."""
        self._lines.extend(record.to_line() for record in records)

    def flush(self) -> None:
        """Append what is kept: once a round.

        Raises:
            FedhpcError: the disk is full or the file cannot be written.
        """
        if not self._lines:
            return
        rest = memoryview("".join(line + "\n" for line in self._lines).encode())
        with _writing(self.path):
            try:
                end = self._size + len(rest)
                while rest:
                    rest = rest[os.pwrite(self._file, rest, end - len(rest)) :]
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, self._size)
                raise
        self._size = end
        self._lines.clear()

    def offset(self) -> int:
        """Flush to the disk and return the file's length in bytes, for a checkpoint."""
        self.flush()
        with _writing(self.path):
            os.fsync(self._file)
        return self._size

    def truncate_to(self, offset: int) -> Path | None:
        """Go back to where a checkpoint was made; the tail that is superseded moves to a file of its own.

        Args:
            offset: what `offset()` returned then.

        Returns:
            The file that got the tail, or None if there was none.

        Raises:
            FedhpcError: the file is shorter than that, or a line does not end there.
        """
        self.flush()
        if offset == self._size:
            return None
        if offset > self._size or (offset > 0 and os.pread(self._file, 1, offset - 1) != b"\n"):
            raise FedhpcError(
                f"{self.path}: has {self._size} bytes, the checkpoint continues after a line that ends at {offset}; "
                "put the file that belongs to the checkpoint back"
            )
        with _writing(self.path):
            tail = self._keep_tail(offset)
            os.ftruncate(self._file, offset)
            os.fsync(self._file)
        self._size = offset
        return tail

    def _keep_tail(self, offset: int) -> Path:
        number = 1
        while True:
            tail = self.path.with_name(f"{self.path.stem}.superseded-{number}{self.path.suffix}")
            try:
                target = tail.open("xb")
            except FileExistsError:
                number += 1
                continue
            with target, self.path.open("rb") as source:
                source.seek(offset)
                shutil.copyfileobj(source, target)
                target.flush()
                os.fsync(target.fileno())
            return tail

    def close(self) -> None:
        """Flush and close; a second call does nothing."""
        if self._file >= 0:
            try:
                self.flush()
            finally:
                os.close(self._file)
                self._file = -1

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FedhpcError(f"{path}: cannot be written: {error.strerror}") from error


def read_records(path: Path) -> Iterator[Record]:
    """Read a file of records, one after the other; a last line that a dying process left torn is passed over.

    Raises:
        FedhpcError: the file cannot be read, or a line is broken; names the line.
    """
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                try:
                    record = Record.from_line(raw.decode())
                except (ValueError, RecursionError) as error:
                    if not raw.endswith(b"\n"):
                        return
                    reason = "is not JSON" if isinstance(error, json.JSONDecodeError) else str(error)
                    raise FedhpcError(f"{path}: line {number} {reason}") from None
                yield record
    except OSError as error:
        raise FedhpcError(f"{path}: cannot be read: {error.strerror}") from error
