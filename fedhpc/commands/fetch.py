"""`fedhpc fetch`: download a dataset's raw files, on a machine that has a network."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from fedhpc.errors import DONE

HELP = """Download the original files of a dataset, or say what to do by hand where no public source allows it.

Run it on a login node: compute nodes often have no network. An interrupted download goes on where it stopped.

example:
  fedhpc fetch domain_net --raw raw/domain_net
  fedhpc prepare domain_net --raw raw/domain_net --out data/domain_net --size 224
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own options."""
    parser.add_argument("name", metavar="NAME", help="dataset; `fedhpc list datasets` shows all")
    parser.add_argument("--raw", metavar="DIR", type=Path, required=True, help="folder for the files; made if missing")


def run(args: argparse.Namespace, overrides: list[str]) -> int:
    """Run the command; returns the exit code."""
    from fedhpc.data.fetch import fetch

    print(fetch(args.name, args.raw, progress=_Bar() if sys.stderr.isatty() else None))
    return DONE


class _Bar:
    """One progress bar per file on a terminal."""

    def __init__(self) -> None:
        self._file = ""
        self._bar: Any = None

    def __call__(self, file: str, there: int, total: int | None) -> None:
        from tqdm import tqdm

        if self._bar is None or file != self._file:
            if self._bar is not None:
                self._bar.close()
            self._file, self._bar = file, tqdm(desc=file, total=total, unit="B", unit_scale=True, leave=True)
        self._bar.update(there - self._bar.n)
        if there == total:
            self._bar.close()
            self._bar = None
