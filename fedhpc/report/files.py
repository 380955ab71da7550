"""The files of a report, written whole, and one page that shows them all."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedhpc.errors import FedhpcError
from fedhpc.report.html import page

PAGE, SELECTION = "report.html", "selection.html"
"""Pages: of a report, and beside that of federated runs that of model selection."""


def write_files(
    target: Path, contents: Mapping[str, str | bytes], title: str, name: str = PAGE, links: Sequence[str] = ()
) -> tuple[Path, ...]:
    """Write the files of a report and a self-contained page of them; files of an earlier report are replaced.

    Args:
        target: the folder, made if need be; nothing else in it is touched.
        contents: file name -> content, in the page's order.
        title: of the page.
        name: of the page.
        links: other pages in the folder that it points at.

    Returns:
        All files, the page last.

    Raises:
        FedhpcError: they cannot be written.
    """
    whole = {**contents, name: page(title, contents, links)}
    try:
        target.mkdir(parents=True, exist_ok=True)
        return tuple(_replace(target / name, content) for name, content in whole.items())
    except OSError as error:
        raise FedhpcError(f"{target}: cannot be written: {error.strerror}; choose another place with --out") from None


def _replace(path: Path, content: str | bytes) -> Path:
    """Write a file so that it is there whole or as it was before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
