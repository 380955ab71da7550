"""Stochastic weight averaging, densely (SWAD; Cha et al., 2021): the mean of all weights in a loss valley.

Weights are anything that can be added and scaled: tensors on any device, or plain numbers in tests. A segment is the
mean of the weights after each local step between two evaluations; it carries the loss found at its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

W = TypeVar("W")


@dataclass(frozen=True)
class Segment(Generic[W]):
    """Weights averaged between two evaluations.

    Attributes:
        mean: their mean.
        steps: how many were averaged.
        end: number of the last step.
        loss: validation loss at the end.
    """

    mean: W
    steps: int
    end: int
    loss: float


class RunningMean(Generic[W]):
    """Exact arithmetic mean of what is added; starts empty, so no model that came before counts.

    Attributes:
        total: sum of what was added, None while empty.
        count: how many were added.
    """

    def __init__(self) -> None:
        self.total: Any = None
        self.count = 0

    def add(self, value: W, times: int = 1) -> None:
        """Add a value that stands for `times` of them."""
        if self.total is None:
            copied: Any = value
            self.total = copied * times
        elif times == 1:
            self.total += value
        else:
            scaled: Any = value
            self.total += scaled * times
        self.count += times

    @property
    def mean(self) -> W:
        """Their mean."""
        if self.total is None:
            raise ValueError("nothing was averaged")
        mean: W = self.total / self.count
        return mean


class Swad(Generic[W]):
    """Averages from the start of a loss valley to its end.

    The valley starts at the first evaluation whose loss is the least of itself and the next `num_converge - 1`; the
    threshold is (1 + `tolerance`) times their mean loss. It ends when the last `num_tolerance` losses all exceed the
    threshold; these are not averaged. Weights are averaged step by step, each once. Until a valley has started, the
    result is the latest segment.

    Only what can still be needed is kept: `num_converge - 1` segments before the start, `num_tolerance - 1` after.

    Attributes:
        segment: mean since the last evaluation.
        recent: segments that are not yet part of the valley.
        valley: mean of the valley so far.
        step: steps so far.
        threshold: loss that ends the valley; None before its start.
        ended: whether the valley is over.
    """

    def __init__(self, num_converge: int = 3, num_tolerance: int = 6, tolerance: float = 0.05) -> None:
        self._num_converge, self._num_tolerance, self._tolerance = num_converge, num_tolerance, tolerance
        self.segment: RunningMean[W] = RunningMean()
        self.recent: list[Segment[W]] = []
        self.valley: RunningMean[W] = RunningMean()
        self.step = 0
        self.threshold: float | None = None
        self.ended = False

    def add(self, weights: W) -> None:
        """Take the weights after one local step."""
        self.segment.add(weights)
        self.step += 1

    def evaluated(self, loss: float) -> None:
        """Close the segment with the validation loss of the present model."""
        if self.ended or not self.segment.count:
            return
        self.recent.append(Segment(self.segment.mean, self.segment.count, self.step, loss))
        self.segment = RunningMean()
        if self.threshold is None:
            self._look_for_start()
        if self.threshold is not None:
            self._look_for_end(self.threshold)

    def result(self) -> W:
        """The averaged weights.

        Raises:
            ValueError: no evaluation yet.
        """
        if self.threshold is None:
            if not self.recent:
                raise ValueError("no evaluation yet, so there is no segment to return")
            return self.recent[-1].mean
        whole: RunningMean[W] = RunningMean()
        if self.valley.count:
            whole.add(self.valley.mean, self.valley.count)
        for segment in [] if self.ended else self.recent:
            whole.add(segment.mean, segment.steps)
        return whole.mean

    def _look_for_start(self) -> None:
        if len(self.recent) < self._num_converge:
            return
        losses = [segment.loss for segment in self.recent]
        if losses[0] <= min(losses):
            self.threshold = (1 + self._tolerance) * sum(losses) / len(losses)
        else:
            del self.recent[0]

    def _look_for_end(self, threshold: float) -> None:
        while len(self.recent) >= self._num_tolerance:
            window = self.recent[: self._num_tolerance]
            if min(segment.loss for segment in window) > threshold:
                self.ended = True
                if not self.valley.count:  # the valley is its first point alone
                    self.valley.add(window[0].mean, window[0].steps)
                return
            self.valley.add(window[0].mean, window[0].steps)
            del self.recent[0]


class CompatSwad(Generic[W]):
    """The averaging as FedMedICL does it, with its errors: segments count alike, the first is overwritten, some twice.

    For comparison with published numbers only.

    Attributes:
        segments: the latest, as many as can still be needed.
        mean: the average so far, None before the valley.
        num_averaged: how many segments were folded into it.
        converge_step, threshold: where the valley starts, and the loss that ends it.
        dead: whether it is over.
    """

    def __init__(self, num_converge: int = 3, num_tolerance: int = 6, tolerance: float = 0.05) -> None:
        self._num_converge, self._num_tolerance, self._tolerance = num_converge, num_tolerance, tolerance
        self.segments: list[Segment[W]] = []
        self.mean: W | None = None
        self.num_averaged = 0
        self.converge_step: int | None = None
        self.threshold: float | None = None
        self.dead = False

    def evaluated(self, mean: W, end: int, loss: float) -> None:
        """Take one segment and the loss at its end."""
        if self.dead:
            return
        self.segments.append(Segment(mean, 1, end, loss))
        del self.segments[: -max(self._num_converge, self._num_tolerance)]
        if self.threshold is None or self.converge_step is None:
            self._start()
            return
        window = self._window()
        if window[0].end < self.converge_step:
            return
        if min(s.loss for s in window) > self.threshold:
            self.dead = True
            return
        self._fold(window[0])

    def result(self) -> W:
        """The averaged weights at the end of a task."""
        if self.mean is None or self.threshold is None:
            return self.segments[-1].mean
        rest = [] if self.dead else self._window()[1:]
        while rest and min(s.loss for s in rest) <= self.threshold:
            self._fold(rest.pop(0))
        return self.mean

    def _window(self) -> list[Segment[W]]:
        return self.segments[-self._num_tolerance :]

    def _start(self) -> None:
        latest = self.segments[-self._num_converge :]
        if len(latest) < self._num_converge or latest[0].loss > min(s.loss for s in latest):
            return
        self.converge_step, self.mean = latest[0].end, latest[0].mean
        self.threshold = sum(s.loss for s in latest) / len(latest) * (1 + self._tolerance)
        if self._num_tolerance < self._num_converge:
            again = latest[1 : 1 + self._num_converge - self._num_tolerance]
        elif self._num_tolerance > self._num_converge:
            again = self._window()[: self._num_tolerance - self._num_converge + 1]
            above = [i for i, s in enumerate(again) if s.loss > self.threshold]
            again = again[(above[-1] + 1 if above else 0) + 1 :]
        else:
            again = []
        for segment in again:
            self._fold(segment)

    def _fold(self, segment: Segment[W]) -> None:
        """Average segment by segment; the counter starts at 0, so the first fold overwrites what was there."""
        before: Any = self.mean
        if self.num_averaged == 0:
            self.mean = segment.mean
        else:
            self.mean = before + (segment.mean - before) / (self.num_averaged + 1)
        self.num_averaged += 1
