"""The raw files of a dataset, whether they lie in a folder or in an archive: list them, read one."""

from __future__ import annotations

import gzip
import os
import stat
import tarfile
import tempfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from fedhpc.data.schema import BadFile, shown
from fedhpc.data.sources.base import BadSampleError
from fedhpc.errors import DatasetError

MAX_FILE_BYTES = 1 << 30
"""A single raw file above this is refused: no image or batch file is that large."""
MAX_ARCHIVE_BYTES = 1 << 36
_BLOCK_BYTES = 1 << 20
_LITTER = {"__MACOSX"}


@dataclass
class Listing:
    """What a folder or archive holds.

    Attributes:
        files: paths relative to its top, with `/`, in code point order; regular files only, litter left out.
        folders: all folders, empty ones too.
        bad: what can't be read: dangling links, pipes, folders without permission.
        notes: remarks, one line each.
    """

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    bad: list[BadFile] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class FileTree(Protocol):
    """A place with raw files; `read` may be called from several threads."""

    listing: Listing

    def read(self, path: str) -> bytes:
        """Return the content of a listed file; raises BadSampleError or OSError."""
        ...


def open_tree(raw: Path) -> FileTree:
    """Open a folder or a .tar, .tar.gz, .tgz or .zip archive.

    Raises:
        DatasetError: neither of them, unreadable, or damaged.
    """
    if raw.is_dir():
        return Folder(raw)
    if raw.is_file() and raw.name.lower().endswith((".tar", ".tar.gz", ".tgz")):
        return Tar(raw)
    if raw.is_file() and raw.name.lower().endswith(".zip"):
        from fedhpc.data._zip import Zip

        return Zip(raw)
    raise DatasetError(f"{shown(str(raw))}: neither a folder nor a .tar, .tar.gz, .tgz or .zip archive")


class Folder:
    """A folder on disk. Links are followed, but never into a cycle; hidden names and archive litter are left out."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self.listing = Listing()
        self._walk("", ())
        self.listing.files.sort()
        self.listing.folders.sort()

    def read(self, path: str) -> bytes:
        # Without O_NONBLOCK the open of a pipe would wait for a writer for ever.
        handle = os.open(os.path.join(self._root, path), os.O_RDONLY | os.O_NONBLOCK)
        with open(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise BadSampleError("not a regular file")
            if status.st_size > MAX_FILE_BYTES:
                raise BadSampleError(f"{status.st_size:,} bytes, the limit is {MAX_FILE_BYTES:,}")
            return file.read(MAX_FILE_BYTES + 1)

    def _walk(self, relative: str, above: tuple[tuple[int, int], ...]) -> None:
        try:
            here = os.stat(os.path.join(self._root, relative))
            if (here.st_dev, here.st_ino) in above:
                self.listing.notes.append(f"{shown(relative)}: a link back to a folder above it, not followed")
                return
            with os.scandir(os.path.join(self._root, relative)) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.listing.bad.append(BadFile(relative or ".", f"folder can't be read ({error.strerror})"))
            return
        if relative:
            self.listing.folders.append(relative)
        for entry in found:
            if not is_litter(entry.name):
                self._visit(entry, f"{relative}/{entry.name}" if relative else entry.name, (*above, _identity(here)))

    def _visit(self, entry: os.DirEntry[str], path: str, above: tuple[tuple[int, int], ...]) -> None:
        try:
            mode = entry.stat().st_mode
        except OSError as error:
            dangling = entry.is_symlink() and not os.path.exists(entry.path)
            self.listing.bad.append(BadFile(path, "link to nothing" if dangling else str(error.strerror)))
            return
        if stat.S_ISDIR(mode):
            self._walk(path, above)
        elif stat.S_ISREG(mode):
            self.listing.files.append(path)
        else:
            self.listing.bad.append(BadFile(path, "not a regular file (a pipe, socket or device)"))


class Tar:
    """A tar archive, read in place; a compressed one is unpacked once into an unnamed temporary file.

    Nothing is ever extracted under a name from the archive; links and special members are left out.
    """

    def __init__(self, path: Path) -> None:
        self.listing = Listing()
        self._members: dict[str, tuple[int, int]] = {}
        try:
            self._file = _uncompressed(path)
            with tarfile.open(fileobj=self._file, mode="r:") as archive:
                for member in archive:
                    self._list(member)
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
            raise DatasetError(f"{shown(str(path))}: damaged archive ({error}); download it again") from None
        except OSError as error:
            raise DatasetError(f"{shown(str(path))}: can't be read ({error.strerror or error})") from None
        self.listing.files = sorted(self._members)
        folders = {str(parent) for name in self._members for parent in PurePosixPath(name).parents}
        self.listing.folders = sorted((folders | set(self.listing.folders)) - {"."})

    def read(self, path: str) -> bytes:
        offset, size = self._members[path]
        content = os.pread(self._file.fileno(), size, offset)
        if len(content) < size:
            raise BadSampleError("cut short in the archive")
        return content

    def _list(self, member: tarfile.TarInfo) -> None:
        parts = [part for part in member.name.split("/") if part not in ("", ".")]
        if not parts or ".." in parts or any(is_litter(part) for part in parts):
            return
        name = "/".join(parts)
        if member.isdir():
            self.listing.folders.append(name)
        elif member.isreg() and not member.issparse():
            if member.size > MAX_FILE_BYTES:
                self.listing.bad.append(BadFile(name, f"{member.size:,} bytes, the limit is {MAX_FILE_BYTES:,}"))
            else:
                self._members[name] = (member.offset_data, member.size)
        else:
            self.listing.bad.append(BadFile(name, "not a regular file in the archive"))


def is_litter(name: str) -> bool:
    """Tell whether a file or folder of this name is left behind by a system, not put there by a person."""
    return name.startswith(".") or name in _LITTER


def _uncompressed(path: Path) -> IO[bytes]:
    """Open a tar file for random access; a gzip stream is first unpacked to a file without a name."""
    with open(path, "rb") as start:
        compressed = start.read(2) == b"\x1f\x8b"
    if not compressed:
        return open(path, "rb")
    unpacked = tempfile.TemporaryFile(prefix="fedhpc-")  # noqa: SIM115 - lives as long as the tree
    size = 0
    with gzip.open(path, "rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            size += len(block)
            if size > MAX_ARCHIVE_BYTES:
                raise ValueError(f"unpacks to more than {MAX_ARCHIVE_BYTES:,} bytes")
            unpacked.write(block)
    unpacked.flush()
    unpacked.seek(0)
    return unpacked


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
