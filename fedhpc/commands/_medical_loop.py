"""The loop of a medical run: stage after stage, from what was saved to the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedhpc.commands import _federation as build
from fedhpc.commands import _medical
from fedhpc.commands._configs import compare_data
from fedhpc.commands._session import Session
from fedhpc.errors import DatasetError
from fedhpc.medical.config import MedicalConfig
from fedhpc.runs.rundir import RunDirectory

if TYPE_CHECKING:
    from fedhpc.federated.engine import Engine
    from fedhpc.federated.state import Outcome
    from fedhpc.runs.checkpoint import Stored
    from fedhpc.timing import Stopwatch


def federation(
    session: Session, config: MedicalConfig, directory: RunDirectory, device: str, clock: Stopwatch
) -> tuple[Engine, Outcome]:
    """Build the run, restore what was saved, and train on one task after the other."""
    from fedhpc.commands._loop import RunLoop

    world = session.world
    with clock.phase("open data"):
        data = _medical.open_data(world, config)
        session.together(lambda: compare_data(directory.path / "scenario.json", data.digest))
    with clock.phase("build model"):
        model, notes = build.build_model(world, config, data.store, device)
        run = _medical.build_run(world, config, data, model, device)
    if world.is_root:
        directory.begin()
        directory.write_json("scenario.json", _medical.report_of(config, data))
        _note_contrast(session, config, directory, data)
        for note in [*notes, *_medical.unused_settings(config, data)]:
            session.warn(note)
    loop = RunLoop(session, config, directory, run.stages[-1].end, data.store)
    engine: Engine | None = None
    outcome: Outcome | None = None
    for stage in run.stages:
        if loop.stored is not None and not _left(loop.stored, stage.end):
            continue
        following = run.engine(stage, loop.sink, clock, loop.saver, loop.stop_requested)
        if engine is None:
            loop.enter(following, stage.end)
        else:
            following.continue_from(engine)
        engine = following
        run.begin(stage, engine)
        outcome = loop.run(engine)
        if outcome.status == "stopped":
            break
    loop.close()
    assert engine is not None, "a run has at least one stage"
    assert outcome is not None
    return engine, outcome


_CONTRASTED = 200
"""Most images of a group whose contrast a run notes: a second at 224 x 224; `fedhpc scenario --contrast` takes all."""


def _note_contrast(
    session: Session, config: MedicalConfig, directory: RunDirectory, data: _medical.MedicalData
) -> None:
    """Leave contrast.json in the run; images it is not defined for are no reason to stop."""
    if (directory.path / "contrast.json").exists():
        return
    try:
        directory.write_json("contrast.json", {config.data.dataset: _contrast_sample(data)})
    except DatasetError as error:
        session.warn(f"no contrast.json: {error}")


def _contrast_sample(data: _medical.MedicalData) -> dict[str, list[float]]:
    """Contrast of images of every group, evenly spread over the dataset, for the report's figure."""
    import numpy as np

    from fedhpc.medical.contrast import contrast_by_group

    group = data.timeline.group
    taken = np.full(len(group), -1)
    for number in range(len(data.timeline.group_names)):
        rows = np.flatnonzero(group == number)
        some = rows[np.linspace(0, len(rows) - 1, min(len(rows), _CONTRASTED)).astype(int)]
        taken[some] = number
    return contrast_by_group(data.store.images, taken, data.timeline.group_names)


def _left(stored: Stored, end: int) -> bool:
    """Whether something of a stage that ends there is still to be done, if only its exam."""
    return stored.round < end or (stored.round == end and stored.meta["progress"]["evaluated"] != end)
