"""Texts as words of a script."""

from __future__ import annotations

import shlex


def word(text: str) -> str:
    """One shell word; a text with a `$` in it is left to the shell, in double quotes."""
    return f'"{text}"' if "$" in text else shlex.quote(text)


def quoted(text: str) -> str:
    """A value in a scheduler's directive; all four take double quotes."""
    return text if text and all(c.isalnum() or c in "-_./:=%{}[]@+," for c in text) else f'"{text}"'
