"""`fedhpc stage`: copy prepared datasets to node-local disk, on all nodes of a job at once."""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from fedhpc.commands._session import Session, in_session
from fedhpc.data.prepare import verify
from fedhpc.errors import DONE, ConfigError

HELP = """Copy prepared datasets to a directory on every node, and print where to read them, a line for each.

A copy is checked before it is used and shows up whole or not at all; a whole copy that is there already is used again.
Where it does not fit on some node, the original directory is printed, with the reason on standard error. Meant for
batch scripts:

example:
  data=$(srun fedhpc stage data/pacs "$TMPDIR" | tail -n 1)
"""

_SPARE = 1.05
"""Free space that must be there, as a multiple of what is copied."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own options."""
    parser.add_argument("sources", metavar="DIR", type=Path, nargs="+", help="folders made by `fedhpc prepare`")
    parser.add_argument("target", metavar="LOCAL", type=Path, help="directory on node-local disk")


def run(args: argparse.Namespace, overrides: list[str]) -> int:
    """Run the command on every rank; returns the exit code."""
    return in_session(lambda session: _stage(session, args.sources, args.target), args.debug)


def _stage(session: Session, sources: list[Path], target: Path) -> int:
    world = session.world
    bad = [text for source in sources if world.is_root and (text := _why_unusable(source))]
    world.agree(ConfigError(bad[0]) if bad else None)
    for source in sources:
        # The name is that of the content: what another job reads is never replaced by something else.
        digest = world.share(_digest(source) if world.is_root else "")
        place = target / f"fedhpc-{os.getuid()}-{source.resolve().name}-{digest[:16]}"
        problem = copy_whole(source, place) if world.local_rank == 0 else None
        told = world.gather(f"{world.host}: {problem}" if problem else None)
        problems = [text for text in told or [] if text]
        if problems:
            session.warn(f"{problems[0]}; {source} is read where it is")
        session.say(str(source if problems else place))
    return DONE


def _why_unusable(source: Path) -> str | None:
    """What keeps a folder from being copied, or None."""
    try:
        (source / "manifest.json").read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return f"{source}: no manifest.json; give a folder made by `fedhpc prepare`"
    except OSError as error:
        return f"{source}: cannot be read ({error.strerror})"
    return None


def _digest(source: Path) -> str:
    """Of the manifest, which has a checksum of everything."""
    return sha256((source / "manifest.json").read_bytes()).hexdigest()


def copy_whole(source: Path, place: Path) -> str | None:
    """Copy a dataset folder to a place that must not show it before it is whole; returns what went wrong, or None."""
    try:
        if os.path.lexists(place):
            return None if _same(source, place) else f"{place}: is there but is no whole copy of {source}; remove it"
        place.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(place)
        files = [f for f in source.iterdir() if f.is_file()]
        size = sum(f.stat().st_size for f in files)
        free = shutil.disk_usage(place.parent).free
        if free < _SPARE * size:
            return f"{place.parent} has {free / 1e9:.1f} GB free, {size / 1e9:.1f} GB are to be copied"
        with _own_folder(place) as temporary:
            for file in files:  # contents only: what cannot be written to could not be removed either
                shutil.copyfile(file, temporary / file.name)
            if found := verify(temporary):
                return f"the copy is damaged ({found[0]})"
            return _show(temporary, source, place)
    except OSError as error:
        return f"{error.filename or place.parent}: {error.strerror}"


def _show(temporary: Path, source: Path, place: Path) -> str | None:
    """Give the finished copy its name, unless another job on this node was faster."""
    try:
        os.rename(temporary, place)
    except OSError:
        if not _same(source, place):
            raise
    return None


@contextmanager
def _own_folder(place: Path) -> Iterator[Path]:
    """A folder beside `place` that is locked while this process lives; removed if it still has its name at the end."""
    handle = None
    while handle is None:  # before it is locked another job may take it for a leftover
        temporary = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
        try:
            handle = _locked(temporary, fcntl.LOCK_EX)
        except OSError:
            temporary.rmdir()
            raise
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(handle)


def _remove_leftovers(place: Path) -> None:
    """Half copies of processes that were killed; the kernel has let go of their locks."""
    for folder in place.parent.glob(f".{place.name}-*"):
        handle = _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if handle is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(handle)


def _locked(folder: Path, how: int) -> int | None:
    """Lock a folder; None if another job has it, or has renamed or removed it meanwhile."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, how)
    except OSError as error:  # the file system may have no locks
        os.close(handle)
        if isinstance(error, BlockingIOError):
            return None
        raise
    if os.path.lexists(folder):
        return handle
    os.close(handle)
    return None


def _same(source: Path, place: Path) -> bool:
    """Whether an earlier copy can be used: ours, the same manifest, every file of the same size."""
    if place.is_symlink() or place.stat().st_uid != os.getuid() or not (place / "manifest.json").is_file():
        return False
    if (source / "manifest.json").read_bytes() != (place / "manifest.json").read_bytes():
        return False
    files = [f for f in source.iterdir() if f.is_file()]
    return all((place / f.name).is_file() and (place / f.name).stat().st_size == f.stat().st_size for f in files)
