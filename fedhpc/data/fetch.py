"""`fedhpc fetch`: download the raw files of a dataset where a public source exists, and say what to do where not.

Downloads go to `NAME.part`, resume after an interruption, are checked against a known sum and only then take their
name. For files without a known sum the sum of the first download is kept in `fetched.json` and compared later.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedhpc.data.schema import shown
from fedhpc.errors import ConfigError, DatasetError, nearest

RECORD = "fetched.json"

_BLOCK_BYTES = 1 << 20
_TIMEOUT_SECONDS = 60
_TRIES = 5
_PAUSE_SECONDS = 1.0
_NOT_ARCHIVES = (b"<!doctype", b"<html")

Progress = Callable[[str, int, int | None], None]
"""Called with (file, bytes there, bytes in all if known)."""


@dataclass(frozen=True)
class Download:
    """One file.

    Attributes:
        file: its name in the raw folder.
        urls: where it is, the first choice first.
        md5: its sum, where it is published.
        size: bytes, where published.
    """

    file: str
    urls: tuple[str, ...]
    md5: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class Recipe:
    """How to get a dataset.

    Attributes:
        downloads: files that can be fetched.
        by_hand: what a person has to do, one line each; empty where fetching is enough.
        files: names of files of which one must be there afterwards, where a person has to get them.
    """

    downloads: tuple[Download, ...] = ()
    by_hand: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


def fetch(name: str, raw: Path, recipes: Mapping[str, Recipe] | None = None, progress: Progress | None = None) -> str:
    """Bring the raw files of a dataset into a folder.

    Args:
        name: of the dataset.
        raw: folder, made if missing; files that are there and sound are left alone.
        recipes: name -> how to get it; None takes the built-in ones.
        progress: told about bytes as they come.

    Returns:
        One or more lines: what to do next.

    Raises:
        ConfigError: no recipe of that name.
        DatasetError: a download failed or has a wrong sum, or a person has to do something first (says what).
    """
    if recipes is None:
        from fedhpc.data._recipes import RECIPES

        recipes = RECIPES
    if name not in recipes:
        raise ConfigError(f"no recipe to fetch '{name}'{nearest(name, list(recipes))}; there are: {', '.join(recipes)}")
    recipe = recipes[name]
    try:
        raw.mkdir(parents=True, exist_ok=True)
        record = _Record(raw)
        for download in recipe.downloads:
            _get(download, raw, record, progress)
    except OSError as error:
        raise DatasetError(f"{shown(str(raw))}: can't be written ({error.strerror or error})") from None
    if recipe.by_hand and not any((raw / file).exists() for file in recipe.files):
        steps = "\n".join(f"  {step}" for step in recipe.by_hand)
        raise DatasetError(f"{name}: has to be fetched by hand into {shown(str(raw))}\n{steps}")
    if not recipe.downloads and not recipe.by_hand:
        return f"{name}: nothing to fetch, it comes with a package"
    return f"{name}: complete; next: fedhpc prepare {name} --raw {shown(str(raw))} --out DIR"


class _Record:
    """Sums of the files that were fetched, beside them."""

    def __init__(self, raw: Path) -> None:
        self._path = raw / RECORD
        self.sums: dict[str, str] = {}
        if self._path.exists():
            try:
                self.sums = {str(k): str(v) for k, v in json.loads(self._path.read_text(encoding="utf-8")).items()}
            except (ValueError, AttributeError):
                raise DatasetError(f"{shown(str(self._path))}: damaged; remove it to fetch again") from None

    def keep(self, file: str, md5: str) -> None:
        """Remember a sum."""
        self.sums[file] = md5
        temporary = self._path.with_name(f"{RECORD}.tmp")
        temporary.write_text(json.dumps(self.sums, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        os.replace(temporary, self._path)


def _get(download: Download, raw: Path, record: _Record, progress: Progress | None) -> None:
    """Make sure that one file is there and sound."""
    target, expected = raw / download.file, download.md5 or record.sums.get(download.file)
    if target.exists():
        found = md5_of(target)
        if expected is not None and found != expected:
            raise DatasetError(
                f"{shown(str(target))}: MD5 {found}, expected {expected}; remove it to fetch it again, "
                "or prepare from it if you know what it is"
            )
        record.keep(download.file, found)
        return
    part = target.with_name(f"{target.name}.part")
    problems = []
    for url in download.urls:
        problem = _download(url, part, download.size, progress)
        if problem is None:
            problem = _accept(part, target, expected, record)
        if problem is None:
            return
        problems.append(f"  {url}: {problem}")
    told = "\n".join(problems)
    raise DatasetError(
        f"{shown(str(target))}: could not be fetched\n{told}\n  run the same command again to go on, or put the file "
        f"there yourself under this name"
    )


def _accept(part: Path, target: Path, expected: str | None, record: _Record) -> str | None:
    """Check a finished download and give it its name; returns what is wrong."""
    with open(part, "rb") as file:
        start = file.read(512).lstrip().lower()
    found = md5_of(part)
    if expected is not None and found != expected:
        part.unlink()  # resuming would never mend it
        return f"MD5 {found}, expected {expected}"
    if start.startswith(_NOT_ARCHIVES):
        part.unlink()
        return "a web page came instead of the file"
    os.replace(part, target)
    record.keep(target.name, found)
    return None


def _download(url: str, part: Path, size: int | None, progress: Progress | None) -> str | None:
    """Fetch the rest of a file, going on after lost connections; returns what went wrong at last."""
    problem: str | None = None
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_PAUSE_SECONDS * 2 ** (attempt - 1))
        before = part.stat().st_size if part.exists() else 0
        try:
            _append(url, part, size, progress)
            return None
        except urllib.error.HTTPError as error:
            if error.code == 416 and before:
                if error.headers.get("Content-Range") == f"bytes */{before}":
                    return None  # all was there, and was to be checked when the last attempt ended
                part.unlink()  # what is there is no beginning of what is offered
            elif error.code < 500 and error.code != 429:
                return f"HTTP {error.code} {error.reason}"
            problem = f"HTTP {error.code} {error.reason}"
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            problem = str(getattr(error, "reason", None) or error or type(error).__name__)
    return f"{problem} (tried {_TRIES} times)"


def _append(url: str, part: Path, size: int | None, progress: Progress | None) -> None:
    """Ask for the bytes that are not there yet and add them."""
    have = part.stat().st_size if part.exists() else 0
    if size is not None and have == size:
        return
    headers = {"User-Agent": "fedhpc", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT_SECONDS) as answer:
        if answer.status != 206:
            have = 0  # the server gives the whole file
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length is not None else size
        with open(part, "ab" if have else "wb") as file:
            while block := answer.read(_BLOCK_BYTES):
                file.write(block)
                have += len(block)
                if progress is not None:
                    progress(part.name.removesuffix(".part"), have, total)
    if total is not None and have < total:
        raise ConnectionError(f"connection lost after {have:,} of {total:,} bytes")


def md5_of(path: Path) -> str:
    """Return the MD5 of a file, which is what dataset pages publish."""
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
