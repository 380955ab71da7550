"""A first guess at how long trials take: a few steps and one evaluation of the cheapest algorithm per dataset."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from fedhpc.data.stores import Store
from fedhpc.sweep.estimate import Timed, cost, num_evaluations
from fedhpc.sweep.plan import Plan
from fedhpc.sweep.run_trial import Trial
from fedhpc.sweep.trials import TrialSpec

_SECONDS, _MOST_STEPS, _EVALUATED = 2.0, 30, 128


def probe(plan: Plan, stores: Mapping[str, Store], device: str = "cpu") -> list[Timed]:
    """Time a few steps of one trial per dataset that is there, in this process, with its threads; writes nothing.

    Starting weights are left out: they may lie elsewhere and do not change the time.

    Args:
        plan: the sweep.
        stores: its datasets, as far as they are there.
        device: name of the device to train on.
    """
    found = []
    for name, store in stores.items():
        trials = [t for t in plan.trials if t.dataset == name]
        if trials:
            chosen = next((t for t in trials if t.algorithm == "erm" and t.hparams_seed == 0), trials[-1])
            found.append(_time(chosen, plan, store, device))
    return found


def _time(spec: TrialSpec, plan: Plan, store: Store, device: str) -> Timed:
    setup: dict[str, Any] = {**spec.setup, "model": {**spec.setup.get("model", {}), "weights": None}}
    trial = Trial(replace(spec, setup=setup), store, device)
    trial.train_one_step()  # allocations and caches
    begun, steps = time.perf_counter(), 0
    while steps < _MOST_STEPS and (steps == 0 or time.perf_counter() - begun < _SECONDS):
        trial.train_one_step()
        steps += 1
    trial.synchronize()
    per_step = (time.perf_counter() - begun) / steps
    seconds = spec.steps * per_step + num_evaluations(spec) * _seconds_of_evaluation(trial)
    batch_size = int(trial.hparams["batch_size"])
    return Timed(spec.dataset, spec.algorithm, cost(spec, batch_size, plan.facts[spec.dataset]), seconds)


def _seconds_of_evaluation(trial: Trial) -> float:
    """From a few images of each kind, augmented or not: as many as an evaluation looks at."""
    seconds: dict[bool, float] = {}
    numbers: dict[bool, int] = {}
    for _, _, indices, augmented in trial.parts():
        numbers[augmented] = numbers.get(augmented, 0) + len(indices)
        if augmented not in seconds and len(indices):
            few = indices[:_EVALUATED]
            noise = torch.Generator().manual_seed(0) if augmented else None
            begun = time.perf_counter()
            trial.accuracy(few, noise)
            trial.synchronize()
            seconds[augmented] = (time.perf_counter() - begun) / len(few)
    return sum(numbers[kind] * per_sample for kind, per_sample in seconds.items())
