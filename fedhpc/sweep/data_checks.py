"""What a plan must find in the datasets before any of its trials runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedhpc.data.splits import split_table
from fedhpc.data.stores import Store
from fedhpc.errors import ConfigError
from fedhpc.sweep.building import build_model, build_transform, choose_model, draw_of, input_size
from fedhpc.sweep.plan import Plan


def check_transforms(plan: Plan, stores: Mapping[str, Store]) -> None:
    """Refuse a transform that does not fit a dataset's images.

    Raises:
        ConfigError: names the dataset.
    """
    for name, store in stores.items():
        setup: Mapping[str, Any] = next((t.setup for t in plan.trials if t.dataset == name), {})
        build_transform(setup, store.manifest)


def check_splits(plan: Plan, stores: Mapping[str, Store]) -> None:
    """Refuse to split datasets as they mark it themselves where they do not.

    Raises:
        ConfigError: names the dataset and the environment.
    """
    for name, store in stores.items():
        try:
            if any(t.dataset == name and t.setup.get("stored_split") for t in plan.trials):
                split_table(store.table, 0, stored=True)
        except ConfigError as error:
            raise ConfigError(f"{error} (dataset {name})") from None


def check_models(plan: Plan, stores: Mapping[str, Store], weights_file: str | None) -> None:
    """Make each network that starts from given weights once, so that a missing file is told before any trial.

    Where torchvision's weights are fetched, this leaves them in the cache for the trials.

    Raises:
        ConfigError: weights that cannot be had or do not fit.
    """
    made = set()
    for trial in plan.trials:
        facts, hparams = plan.facts[trial.dataset], plan.hparams[draw_of(trial)]
        height, width = input_size(trial.setup, facts.height, facts.width, facts.channels)
        choice = choose_model(trial.setup, hparams, height, width)
        if choice.weights is not None and (trial.dataset, choice.name) not in made:
            made.add((trial.dataset, choice.name))
            shape = (facts.channels, height, width)
            build_model(choice, shape, len(stores[trial.dataset].manifest.classes), hparams, weights_file)
