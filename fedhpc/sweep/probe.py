"""A first guess at how long trials take: a few steps and one evaluation of the cheapest algorithm per dataset."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedhpc.data.stores import Store
from fedhpc.sweep.estimate import Timed, cost
from fedhpc.sweep.plan import Plan
from fedhpc.sweep.run_trial import Trial
from fedhpc.sweep.trials import TrialSpec

_SECONDS, _MOST_STEPS, _EVALUATED = 2.0, 30, 128


def probe(plan: Plan, stores: Mapping[str, Store]) -> list[Timed]:
    """Time a few steps of one trial per dataset, in this process; writes nothing.

    Starting weights are left out: they may lie elsewhere and do not change the time.
    """
    found = []
    for name in plan.facts:
        trials = [t for t in plan.trials if t.dataset == name]
        if trials:
            chosen = next((t for t in trials if t.algorithm == "erm" and t.hparams_seed == 0), trials[-1])
            found.append(_time(chosen, plan, stores[name]))
    return found


def _time(spec: TrialSpec, plan: Plan, store: Store) -> Timed:
    setup: dict[str, Any] = {**spec.setup, "model": {**spec.setup.get("model", {}), "weights": None}}
    trial = Trial(replace(spec, setup=setup), store)
    trial.train_one_step()  # allocations and caches
    begun, steps = time.perf_counter(), 0
    while steps < _MOST_STEPS and (steps == 0 or time.perf_counter() - begun < _SECONDS):
        trial.train_one_step()
        steps += 1
    per_step = (time.perf_counter() - begun) / steps
    few = np.arange(min(_EVALUATED, store.num_samples))
    begun = time.perf_counter()
    trial.accuracy(few)
    per_sample = (time.perf_counter() - begun) / len(few)
    evaluations = 1 + (spec.steps - 1) // spec.checkpoint_freq
    seconds = spec.steps * per_step + evaluations * store.num_samples * per_sample
    batch_size = int(trial.hparams["batch_size"])
    return Timed(spec.dataset, spec.algorithm, cost(spec, batch_size, plan.facts[spec.dataset]), seconds)
