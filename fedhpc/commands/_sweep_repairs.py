"""Which trials of a sweep are to be run again though its queue knows how they ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedhpc.commands._session import Session
from fedhpc.errors import FedhpcError
from fedhpc.report.trial_files import DONE, read_trial
from fedhpc.sweep.queue_files import forgive, reopen

if TYPE_CHECKING:
    from fedhpc.commands._sweeping import Prepared


def reopen_trials(session: Session, prepared: Prepared, folder: Path, retry_failed: bool) -> None:
    """Root: let trials be run again whose records are gone, and, if asked for, those that failed; collective."""
    session.together(lambda: _reopen(session, prepared, folder, retry_failed) if session.world.is_root else None)


def _reopen(session: Session, prepared: Prepared, folder: Path, retry_failed: bool) -> None:
    from fedhpc.sweep.trial_folder import has_models

    places = {t.id: folder / t.folder for t in prepared.trials}
    if retry_failed:
        session.say(f"{forgive(folder, places)} failed trials will be tried again")
        for place in places.values():
            _drop_damaged(place, folder)

    def incomplete(trial: str) -> bool:
        place = places[trial]
        return not (place / DONE).exists() or not has_models(place, prepared.models.get(trial, ()))

    if gone := reopen(folder, incomplete, places):
        session.say(f"{gone} trials are marked as done but have no records or models; they will be run again")


def _drop_damaged(place: Path, folder: Path) -> None:
    """Let a trial whose records a report would refuse count as one without records."""
    if (place / DONE).exists():
        try:
            read_trial(place, folder)
        except FedhpcError:
            (place / DONE).unlink(missing_ok=True)
