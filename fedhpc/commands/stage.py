"""`fedhpc stage`: copy a prepared dataset to node-local disk, on all nodes of a job at once."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from fedhpc.commands._session import Session, in_session
from fedhpc.data.prepare import verify
from fedhpc.errors import DONE, ConfigError

HELP = """Copy a prepared dataset to a directory on every node, and print where to read it.

The copy is checked before it is used and shows up whole or not at all. Where it does not fit on some node, the original
directory is printed, with the reason on standard error. Meant for batch scripts:

example:
  data=$(srun fedhpc stage data/pacs "$TMPDIR" | tail -n 1)
"""

_SPARE = 1.05
"""Free space that must be there, as a multiple of what is copied."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own options."""
    parser.add_argument("source", metavar="DIR", type=Path, help="folder made by `fedhpc prepare`")
    parser.add_argument("target", metavar="LOCAL", type=Path, help="directory on node-local disk")


def run(args: argparse.Namespace, overrides: list[str]) -> int:
    """Run the command on every rank; returns the exit code."""
    return in_session(lambda session: _stage(session, args.source, args.target), args.debug)


def _stage(session: Session, source: Path, target: Path) -> int:
    world = session.world
    missing = world.is_root and not (source / "manifest.json").is_file()
    world.agree(ConfigError(f"{source}: no manifest.json; give a folder made by `fedhpc prepare`") if missing else None)
    place = target / f"fedhpc-{os.getuid()}-{source.resolve().name}"
    problem = copy_whole(source, place) if world.local_rank == 0 else None
    told = world.gather(f"{world.host}: {problem}" if problem else None)
    problems = [text for text in told or [] if text]
    if problems:
        session.warn(f"{problems[0]}; {source} is read where it is")
    session.say(str(source if problems else place))
    return DONE


def copy_whole(source: Path, place: Path) -> str | None:
    """Copy a dataset folder to a place that must not show it before it is whole; returns what went wrong, or None."""
    try:
        if (place / "manifest.json").is_file() and _same(source, place):
            return None
        place.parent.mkdir(parents=True, exist_ok=True)
        size = sum(f.stat().st_size for f in source.iterdir() if f.is_file())
        free = shutil.disk_usage(place.parent).free
        if free < _SPARE * size:
            return f"{place.parent} has {free / 1e9:.1f} GB free, {size / 1e9:.1f} GB are to be copied"
        temporary = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    except OSError as error:
        return f"{place.parent}: {error.strerror}"
    try:
        shutil.copytree(source, temporary, dirs_exist_ok=True)
        found = verify(temporary)
        if found:
            return f"the copy is damaged ({found[0]})"
        if place.exists():  # of another dataset of this name, or half a copy of a killed job
            shutil.rmtree(place)
        os.replace(temporary, place)
        return None
    except OSError as error:
        return f"{place}: {error.strerror}"
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _same(source: Path, place: Path) -> bool:
    """Whether an earlier copy can be used again: the same manifest, every file of the same size."""
    if (source / "manifest.json").read_bytes() != (place / "manifest.json").read_bytes():
        return False
    return all(
        (place / f.name).is_file() and (place / f.name).stat().st_size == f.stat().st_size for f in source.iterdir()
    )
