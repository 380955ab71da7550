"""Hyperparameters of the domain-generalization study: one default and one random draw for each, and their seeds.

The table of DomainBed (arXiv 2007.01434, appendix). A value depends only on the seeds, its own name and its
distribution, so that a new algorithm or hyperparameter changes no other; the numbers equal the original's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, Protocol, get_args

import numpy as np

from fedhpc import registry
from fedhpc.errors import ConfigError
from fedhpc.seeding import text_hash

Value = bool | int | float
Profile = Literal["paper", "head"]
"""`paper`: as the published tables were made; `head`: the original's last state, and what the known answers show."""
Group = Literal["small", "large", "domain_net"]

_SMALL = frozenset(("coloredmnist", "rotatedmnist", "debug28", "coloreddigits", "rotateddigits", "mnist", "digits"))


class Distribution(Protocol):
    """Where random search takes a value from."""

    def draw(self, stream: np.random.RandomState) -> Value:
        """Take the first value of a stream, as a plain Python number."""
        ...


@dataclass(frozen=True)
class Constant:
    """Not searched."""

    value: Value

    def draw(self, stream: np.random.RandomState) -> Value:
        """See `Distribution.draw`."""
        return self.value


@dataclass(frozen=True)
class PowerOf:
    """base^U with U uniform in [low, high); `integer` cuts the fraction off."""

    base: float
    low: float
    high: float
    integer: bool = False

    def draw(self, stream: np.random.RandomState) -> Value:
        """See `Distribution.draw`."""
        value = float(self.base ** stream.uniform(self.low, self.high))
        return int(value) if self.integer else value


@dataclass(frozen=True)
class Choice:
    """One of some values, all equally likely."""

    values: tuple[Value, ...]

    def draw(self, stream: np.random.RandomState) -> Value:
        """See `Distribution.draw`."""
        return self.values[int(stream.choice(len(self.values)))]


@dataclass(frozen=True)
class HParam:
    """One hyperparameter.

    Attributes:
        default: used with hyperparameter seed 0.
        distribution: drawn from with every other seed.
        groups: default and distribution for datasets of a group, where they differ.
    """

    default: Value
    distribution: Distribution
    groups: Mapping[Group, tuple[Value, Distribution]] = field(default_factory=dict)

    def is_fixed(self, group: Group) -> bool:
        """Whether random search leaves the default alone."""
        default, distribution = self.groups.get(group, (self.default, self.distribution))
        return distribution == Constant(default)

    def value(self, group: Group, stream: np.random.RandomState | None = None) -> Value:
        """Return the default, or the first draw of a stream."""
        default, distribution = self.groups.get(group, (self.default, self.distribution))
        return default if stream is None else distribution.draw(stream)


def fixed(value: Value) -> HParam:
    """Describe a hyperparameter that random search leaves alone."""
    return HParam(value, Constant(value))


LEARNING_RATE = HParam(5e-5, PowerOf(10, -5, -3.5), {"small": (1e-3, PowerOf(10, -4.5, -2.5))})
WEIGHT_DECAY = HParam(0.0, PowerOf(10, -6, -2), {"small": (0.0, Constant(0.0))})
DROPOUT = HParam(0.0, Choice((0.0, 0.1, 0.5)))

COMMON: Mapping[str, HParam] = {
    "lr": LEARNING_RATE,
    "weight_decay": WEIGHT_DECAY,
    "batch_size": HParam(
        32,
        PowerOf(2, 3, 5.5, integer=True),
        {"small": (64, PowerOf(2, 3, 9, integer=True)), "domain_net": (32, PowerOf(2, 3, 5, integer=True))},
    ),
    "resnet_dropout": DROPOUT,
    "class_balanced": fixed(False),
    "data_augmentation": fixed(True),
    "nonlinear_classifier": fixed(False),
    "resnet18": fixed(False),
    "freeze_bn": fixed(False),
    "resnet50_augmix": fixed(True),
    # These belong to later algorithms, but are drawn and logged for all.
    "dinov2": fixed(False),
    "vit": fixed(False),
    "vit_attn_tune": fixed(False),
    "lars": fixed(False),
    "vit_dropout": DROPOUT,
    "linear_steps": fixed(500),
}
"""What every algorithm has; each objective's own hyperparameters are its `space`."""

_PROFILES: Mapping[Profile, Mapping[str, Value]] = {
    "paper": {"freeze_bn": True, "resnet50_augmix": False},
    "head": {},
}
"""What a profile changes in the values: the paper trained a plain ImageNet ResNet-50 with frozen batch norm."""
_DRAWS: Mapping[Profile, Mapping[str, Value]] = {"paper": {"mixup_alpha": 0.1}, "head": {}}
"""What a profile changes in the draws: both bounds of Mixup's were the same by mistake until 2023."""


def plain(name: str) -> str:
    """Return a name without case and underscores, so that GroupDRO and groupdro, PACS and pacs are one."""
    return name.replace("_", "").lower()


def group_of(dataset: str) -> Group:
    """Return the group of a dataset, which decides some defaults and distributions."""
    name = plain(dataset)
    if name in _SMALL:
        return "small"
    return "domain_net" if name == "domainnet" else "large"


@cache
def space_of(algorithm: str) -> Mapping[str, HParam]:
    """Return all hyperparameters of an algorithm, named as its file or as DomainBed names it.

    Raises:
        ConfigError: no such algorithm.
    """
    package = "fedhpc.objectives"
    named = (name for name in registry.names(package) if plain(name) == plain(algorithm))
    objective = registry.load(package, next(named, algorithm)).OBJECTIVE
    return {**COMMON, **objective.space}


def name_seed(hparams_seed: int, trial_seed: int, name: str) -> int:
    """Return the seed of the stream that one hyperparameter is drawn from."""
    return text_hash(text_hash(hparams_seed, trial_seed), name)


def hparams_for(
    algorithm: str, dataset: str, hparams_seed: int = 0, trial_seed: int = 0, profile: Profile = "paper"
) -> dict[str, Value]:
    """Return the hyperparameters of one trial as plain Python numbers.

    Args:
        algorithm: of an objective, e.g. `groupdro` or GroupDRO.
        dataset: e.g. `rotated_mnist` or RotatedMNIST.
        hparams_seed: 0 gives the defaults, whatever the trial.
        trial_seed: of the repetition; random values are drawn anew in each.
        profile: `head` gives the original's values; `paper` differs in the keys that name the network and, in what is
            drawn, in Mixup's `mixup_alpha`.

    Raises:
        ConfigError: no such algorithm or profile.
    """
    if profile not in get_args(Profile):
        raise ConfigError(f"sweep.profile is '{profile}', allowed are {' and '.join(get_args(Profile))}")
    group, values = group_of(dataset), {}
    for name, hparam in space_of(algorithm).items():
        drawn = hparams_seed and not hparam.is_fixed(group)  # a stream is dear beside a number that needs none
        stream = np.random.RandomState(name_seed(hparams_seed, trial_seed, name)) if drawn else None
        values[name] = hparam.value(group, stream)
    if hparams_seed:
        values.update({name: value for name, value in _DRAWS[profile].items() if name in values})
    return {**values, **_PROFILES[profile]}
