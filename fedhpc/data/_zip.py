"""Zip archives, and several trees seen as one."""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from fedhpc.data._files import MAX_FILE_BYTES, FileTree, Listing, is_litter
from fedhpc.data.schema import BadFile, shown
from fedhpc.data.sources.base import BadSampleError
from fedhpc.errors import DatasetError


class Zip:
    """A zip archive, read in place; nothing is ever extracted under a name from it, links are left out.

    Raises:
        DatasetError: damaged or unreadable.
    """

    def __init__(self, path: Path) -> None:
        self.listing = Listing()
        self._members: dict[str, zipfile.ZipInfo] = {}
        try:
            self._archive = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise DatasetError(f"{shown(str(path))}: damaged archive ({error}); download it again") from None
        except OSError as error:
            raise DatasetError(f"{shown(str(path))}: can't be read ({error.strerror or error})") from None
        folders: set[str] = set()
        for member in self._archive.infolist():
            folders |= self._list(member)
        self.listing.files = sorted(self._members)
        folders |= {str(parent) for name in self._members for parent in PurePosixPath(name).parents}
        self.listing.folders = sorted(folders - {"."})

    def read(self, path: str) -> bytes:
        """See `FileTree.read`."""
        member = self._members[path]
        try:
            with self._archive.open(member) as stream:
                content = stream.read(member.file_size + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise BadSampleError(f"damaged in the archive ({error})") from None
        if len(content) != member.file_size:
            raise BadSampleError("cut short in the archive")
        return content

    def _list(self, member: zipfile.ZipInfo) -> set[str]:
        """Take up a file, or return the folder that a member is."""
        parts = [part for part in member.filename.split("/") if part not in ("", ".")]
        if not parts or ".." in parts or any(is_litter(part) for part in parts):
            return set()
        name = "/".join(parts)
        if member.is_dir():
            return {name}
        if stat.S_ISLNK(member.external_attr >> 16):
            self.listing.bad.append(BadFile(name, "not a regular file in the archive"))
        elif member.flag_bits & 1:
            self.listing.bad.append(BadFile(name, "encrypted"))
        elif member.file_size > MAX_FILE_BYTES:
            self.listing.bad.append(BadFile(name, f"{member.file_size:,} bytes, the limit is {MAX_FILE_BYTES:,}"))
        else:
            self._members[name] = member
        return set()


class Merged:
    """Several trees as one; of two files with the same path the first counts."""

    def __init__(self, trees: Sequence[FileTree]) -> None:
        self._owner = {path: tree for tree in reversed(trees) for path in tree.listing.files}
        self.listing = Listing(
            sorted(self._owner),
            sorted({folder for tree in trees for folder in tree.listing.folders}),
            [entry for tree in trees for entry in tree.listing.bad],
            [note for tree in trees for note in tree.listing.notes],
        )

    def read(self, path: str) -> bytes:
        """See `FileTree.read`."""
        return self._owner[path].read(path)
