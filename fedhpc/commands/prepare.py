"""`fedhpc prepare`: from a dataset's raw layout on disk to HDF5 shards."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fedhpc.errors import DONE, FAILED, ConfigError

HELP = """Turn a dataset's original files into a folder of HDF5 shards, or check such a folder.

examples:
  fedhpc prepare mnist --raw raw/mnist --out data/mnist
  fedhpc prepare image_folder --raw raw/PACS --out data/pacs --size 224
  fedhpc prepare --verify data/pacs
"""

_QUIET_SECONDS = 60.0
"""Time between two lines about progress where there is no terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own options."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="dataset; `fedhpc list datasets` shows all")
    parser.add_argument("--raw", metavar="DIR", type=Path, help="folder or archive with the original files")
    parser.add_argument("--out", metavar="DIR", type=Path, help="folder to make")
    parser.add_argument("--size", metavar="N", type=int, help="resize images to N x N pixels")
    parser.add_argument(
        "--fit",
        choices=("squeeze", "crop"),
        help="to that size: change proportions, or cut out the centre of 256/224 of it (default: medical sets crop)",
    )
    parser.add_argument("--channels", type=int, choices=(1, 3), help="gray or RGB (default: as the source says)")
    parser.add_argument("--layout", default="auto", choices=("auto", "class", "environment"), help="of image_folder")
    parser.add_argument("--seed", type=int, default=0, help="of datasets with random parts, such as colored_mnist")
    parser.add_argument(
        "--interpolation", default="bilinear", choices=("bilinear", "bicubic"), help="of rotated images"
    )
    parser.add_argument(
        "--on-bad", default="stop", choices=("stop", "skip"), help="what to do with files that cannot be read"
    )
    parser.add_argument("--verify", metavar="DIR", type=Path, help="check sizes and checksums of a prepared folder")


def run(args: argparse.Namespace, overrides: list[str]) -> int:
    """Run the command; returns the exit code."""
    from fedhpc.data.prepare import prepare, verify

    if args.verify is not None:
        problems = verify(args.verify)
        for problem in problems:
            print(f"fedhpc: error: {problem}", file=sys.stderr)
        if not problems:
            print(f"{args.verify}: sound")
        return FAILED if problems else DONE
    if args.name is None or args.out is None:
        raise ConfigError("prepare needs NAME and --out (and --raw for all but embedded datasets), or --verify DIR")
    start = time.perf_counter()
    manifest = prepare(
        args.name,
        args.raw,
        args.out,
        size=args.size,
        channels=args.channels,
        on_bad=args.on_bad,
        layout=args.layout,
        seed=args.seed,
        interpolation=args.interpolation,
        fit=args.fit,
        progress=_live if sys.stderr.isatty() else _now_and_then(),
    )
    seconds = time.perf_counter() - start
    for note in manifest.notes:
        print(f"fedhpc: note: {note}", file=sys.stderr)
    print(
        f"{args.out}: {manifest.num_samples} samples, {len(manifest.classes)} classes, "
        f"{len(manifest.environments)} environments, {manifest.height}x{manifest.width}x{manifest.channels}, "
        f"{manifest.num_skipped} files skipped, {manifest.num_samples / seconds:.0f} images/s"
    )
    return DONE


def _live(done: int, total: int) -> None:
    """A live count on a terminal."""
    if done % 100 == 0 or done == total:
        print(f"\r{done}/{total}", end="\n" if done == total else "", file=sys.stderr, flush=True)


def _now_and_then() -> Callable[[int, int], None]:
    """A line for a batch job's log each minute, so that a large dataset is not prepared in silence for hours."""
    began = last = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < _QUIET_SECONDS:
            return
        last, rate = now, done / max(now - began, 1e-9)
        left = f"{(total - done) / rate / 60:.0f} min left"
        print(f"{done:,} of {total:,} samples, {rate:.0f} images/s, {left}", file=sys.stderr, flush=True)

    return tell
