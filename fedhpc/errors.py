"""Errors that are the user's to fix: a line or a few that name the file, key or client and the remedy."""

from __future__ import annotations

DONE, FAILED, BAD_USAGE, STOPPED_EARLY = 0, 1, 2, 75
"""Exit codes of every command; 75 (EX_TEMPFAIL) asks a batch script to run the job again."""


class FedhpcError(ValueError):
    """A problem the user can fix; printed without a traceback."""

    exit_code = FAILED


class ConfigError(FedhpcError):
    """A bad command line, configuration or request (an impossible partition, say)."""

    exit_code = BAD_USAGE


class DatasetError(FedhpcError):
    """Data on disk that are missing, damaged or of another version."""


class DataRequestError(DatasetError):
    """A request that what is on disk does not allow: no dataset there, another one, or something in the way."""

    exit_code = BAD_USAGE


class AgreedError(FedhpcError):
    """An error that every rank raises alike, so that the job can end in order."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


DIVERGES_AGAIN = "--resume would diverge again"
"""Stands in the message about a run that no second try helps."""


def nearest(word: str, allowed: list[str]) -> str:
    """Return ` (did you mean 'x'?)` for the closest of `allowed`, or an empty string."""
    import difflib

    close = difflib.get_close_matches(word, allowed, n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else ""
