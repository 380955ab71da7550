"""One rank's way through a sweep: from a claim to a finished trial, until all are settled or it has to stop."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fedhpc
from fedhpc.comm.deadline import Deadline, job_end_now
from fedhpc.commands._session import Session
from fedhpc.errors import ConfigError
from fedhpc.report.trial_files import DONE
from fedhpc.sweep.schedule import Claim, Ending, Queue, work
from fedhpc.sweep.trials import TrialSpec

if TYPE_CHECKING:
    from fedhpc.data.stores import Store
    from fedhpc.sweep.trial_folder import TrialFolder
    from fedhpc.timing import Stopwatch

_LOST_CHECK = 5.0
"""Seconds between looks whether a running trial still belongs to this worker."""
_QUIET_SECONDS, _FIRST_WORD, _NEXT_WORD = 2.0, 10.0, 60.0
"""Root speaks of finished trials at most so often, and of one that runs after so long, then so often."""


class TrialRunner:
    """Runs claimed trials on this rank.

    Args:
        session: the ranks.
        folder: the sweep's.
        stores: the datasets, by name.
        queue: this rank's, entered.
        clock: of this rank; it ticks with every step, so that others can see that it lives.
        device: name of the device to train on.
        checkpoint_seconds: between two checkpoints of a running trial.
        weights_file: where the starting weights lie, if they are a file.
        end: when the job ends (seconds since 1970), if anybody knows.
        models: steps after which a trial's model is kept, by id.
    """

    def __init__(
        self,
        session: Session,
        folder: Path,
        stores: Mapping[str, Store],
        queue: Queue,
        clock: Stopwatch,
        *,
        device: str,
        checkpoint_seconds: float,
        weights_file: str | None,
        end: float | None,
        models: Mapping[str, Collection[int]],
    ) -> None:
        self._session, self._folder, self._stores = session, folder, stores
        self._queue, self._clock, self._models = queue, clock, models
        self._device, self._checkpoint_seconds, self._weights_file = device, checkpoint_seconds, weights_file
        # Root alone asks the batch system anew: a thousand ranks would ask at the same moment.
        self._deadline = Deadline(lambda: end, job_end_now if session.world.is_root else lambda: None)
        self._looks, self._longest_save = 0, 0.0
        self._sink: TrialFolder | None = None
        self._said, self._pause, self._finished = time.monotonic(), _FIRST_WORD, 0

    def run(self, trials: Mapping[str, TrialSpec]) -> bool:
        """Claim and run trials until all are settled (True) or a stop is asked for (False)."""
        return work(
            self._queue,
            lambda claim: self._attempt(trials[claim.trial], claim),
            self._should_stop,
            lambda claim, trace: self._failed(trials[claim.trial], claim, trace),
        )

    def _should_stop(self) -> bool:
        """Whether somebody asked for a stop, or the job's time runs out; asked at least once per step, and idle."""
        self._clock.ticks += 1
        self._looks += 1  # each look closes an interval: the longest one may be an evaluation, or a model's making
        longest = max(self._longest_save, self._sink.longest_save if self._sink else 0.0)
        if self._deadline.is_near(self._looks, longest):
            self._session.stop.ask("the job's time is running out")
        return bool(self._session.stop)

    def _attempt(self, spec: TrialSpec, claim: Claim) -> Ending:
        """Run one trial."""
        with self._clock.phase(f"{spec.algorithm} on {spec.dataset}", hparams=spec.hparams_seed, trial=spec.trial_seed):
            try:
                return self._train(spec, claim)
            finally:
                if self._sink is not None:
                    self._sink.leave()
                    self._longest_save = max(self._longest_save, self._sink.longest_save)
                self._sink = None
                self._queue.worker.tick()

    def _train(self, spec: TrialSpec, claim: Claim) -> Ending:
        from fedhpc.sweep.run_trial import run_trial
        from fedhpc.sweep.trial_folder import TrialFolder, has_models

        begun = time.perf_counter()
        place, models = self._folder / spec.folder, self._models.get(spec.id, ())
        if (place / DONE).exists() and has_models(place, models):
            return "done"
        self._progress(spec, 0, 0.0)
        stop = self._stop_of(claim)
        sink = self._sink = TrialFolder(
            place, claim.attempt, self._checkpoint_seconds, stop, lambda n, s: self._progress(spec, n, s), models
        )
        done = run_trial(spec, self._stores[spec.dataset], sink, self._device, self._weights_file)
        if claim.is_lost:
            return "lost"
        if done is None:
            return "stopped"
        seconds = max(time.perf_counter() - begun, done["seconds_train"] + done["seconds_evaluate"])
        sink.finish({**done, "seconds": seconds, "attempts": claim.attempt, "device": self._device,
                     "host": socket.gethostname(), "fedhpc": fedhpc.__version__})  # fmt: skip
        if done["diverged"]:
            self._queue.diverged(claim)
        self._finished += 1
        if self._may_speak(_QUIET_SECONDS):
            self._tell(f"finished {self._finished}, last {label(spec)}: {seconds:.3g} s")
        return "done"

    def _progress(self, spec: TrialSpec, step: int, seconds: float) -> None:
        """Take note of a step: for the watch of this job, for other workers, and for a person."""
        self._clock.ticks += 1
        self._queue.worker.tick(trial=spec.id, step=step, steps=spec.steps, seconds=round(seconds, 3))
        if self._may_speak(self._pause):
            self._tell(f"has done step {step} of {spec.steps}: {label(spec)}")
            self._pause = _NEXT_WORD

    def _failed(self, spec: TrialSpec, claim: Claim, trace: str) -> None:
        """Tell that an attempt raised."""
        self._session.log(f"{spec.folder}, attempt {claim.attempt}\n{trace}")
        print(
            f"fedhpc: warning: rank {self._session.world.rank}: {label(spec)} failed (attempt {claim.attempt}): "
            f"{trace.strip().splitlines()[-1]}",
            flush=True,
        )

    def _may_speak(self, pause: float) -> bool:
        """Whether this is root, and its last line is older than a pause."""
        return self._session.world.is_root and time.monotonic() - self._said >= pause

    def _tell(self, text: str) -> None:
        self._said = time.monotonic()
        print(f"{time.strftime('%H:%M:%S')} rank 0 {text}", flush=True)

    def _stop_of(self, claim: Claim) -> Callable[[], bool]:
        """Whether to stop a trial: someone asked, or (looked at rarely) another worker has taken it over."""
        looked = time.monotonic()
        lost = False

        def stop() -> bool:
            nonlocal looked, lost
            if time.monotonic() - looked >= _LOST_CHECK:
                looked, lost = time.monotonic(), claim.is_lost
            return self._should_stop() or lost

        return stop


def label(spec: TrialSpec) -> str:
    """A trial for a person."""
    return (
        f"{spec.algorithm} on {spec.dataset}, test environments {list(spec.test_envs)}, hparams {spec.hparams_seed}, "
        f"trial {spec.trial_seed}"
    )


def asked_models(only: str | None) -> tuple[tuple[str, ...] | None, dict[str, set[int]]]:
    """Read `--only ID,ID@STEP`: the ids (None for all), and the steps after which models are kept."""
    models: dict[str, set[int]] = {}
    if only is None:
        return None, models
    for word in only.split(","):
        trial, at, step = word.strip().partition("@")
        steps = models.setdefault(trial, set())
        if at:
            steps.add(_step(word, step))
    return tuple(models), {trial: steps for trial, steps in models.items() if steps}


def _step(word: str, step: str) -> int:
    if not step.isdecimal():
        raise ConfigError(f"--only: '{word}' is no ID or ID@STEP (the step after which the model is kept, from 0)")
    return int(step)


def kept_models(asked: Mapping[str, Collection[int]], trials: Collection[TrialSpec], keep: str) -> dict[str, Any]:
    """Steps after which models are kept, by trial: what was asked for, and the last if the configuration says so.

    Raises:
        ConfigError: a step that a trial does not have.
    """
    found = {}
    for trial in trials:
        steps = {*asked.get(trial.id, ())} | ({trial.steps - 1} if keep == "last" else set())
        if max(steps, default=0) >= trial.steps:
            raise ConfigError(f"--only: {trial.id} has steps 0 to {trial.steps - 1}, not {max(steps)}")
        if steps:
            found[trial.id] = steps
    return found
