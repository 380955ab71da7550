"""The YAML of a sweep: `fedhpc.config.load(SweepConfig, path)`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from fedhpc import registry
from fedhpc.config import DeviceConfig, Limits, Section, diff, to_tree
from fedhpc.errors import ConfigError, nearest
from fedhpc.report.names import ours
from fedhpc.report.selection import PACKAGE as CRITERIA
from fedhpc.sweep.queue_files import QueueSettings

STUDY = ("erm", "irm", "groupdro", "mixup", "mldg", "coral", "mmd", "dann", "cdann")
"""The nine algorithms of the study, in its order."""
SOURCES = "fedhpc.data.sources"
ALL_CRITERIA = ("training_domain_validation", "leave_one_domain_out", "oracle")
AUTO = "auto"
EACH: Literal["each"] = "each"

_AT_LEAST_1 = Limits(at_least=1)
_AT_LEAST_0 = Limits(at_least=0)
_Number = bool | int | float
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class AxesConfig(Section):
    """What the sweep runs over, and how each trial trains."""

    datasets: Annotated[
        dict[str, str | None] | tuple[str, ...],
        "dataset: folder that `fedhpc prepare` wrote (null: embedded), or a list of embedded ones; a folder of one's "
        "own images may have any name",
    ]
    algorithms: Annotated[tuple[str, ...], "file names in fedhpc/objectives"] = STUDY
    criteria: Annotated[tuple[str, ...], "only the trials that these need are run"] = ALL_CRITERIA
    test_envs: Annotated[
        tuple[int | Literal["each"] | tuple[int, ...], ...] | None,
        "environments to be tested on; null: each; a list among them is held out as it is: [each, [0, 1, 2]]",
    ] = None
    n_hparams: Annotated[int, _AT_LEAST_1, "hyperparameter draws; the first are the defaults"] = 20
    first_hparams: Annotated[int, _AT_LEAST_0, "number of the first draw"] = 0
    n_trials: Annotated[int, _AT_LEAST_1, "repetitions of everything"] = 3
    first_trial: Annotated[int, _AT_LEAST_0, "number of the first repetition"] = 0
    steps: Annotated[int | None, _AT_LEAST_1, "updates per trial; null: 5001"] = None
    checkpoint_freq: Annotated[int | None, _AT_LEAST_1, "updates between evaluations; null: the dataset's"] = None
    profile: Annotated[Literal["paper", "head"], "the published tables' program, or the original's last state"] = (
        "paper"
    )
    holdout_fraction: Annotated[float, Limits(above=0, below=1), "share of each environment for validation"] = 0.2
    stratified: Annotated[bool, "split every class in the same proportion"] = False
    stored_split: Annotated[
        bool, "validate on what the dataset marks so (or as test), train on what it marks train"
    ] = False
    hparams: Annotated[dict[str, _Number], "hyperparameters that are given, whatever the draw"] = field(
        default_factory=dict
    )
    fixed_draws: Annotated[
        bool, "the same hyperparameters in every repetition, so that error bars are those of seeds"
    ] = False
    train_accuracy: Annotated[bool, "evaluate what training environments were trained on, too"] = True
    validation: Annotated[
        Literal["augmented", "plain"], "images of training environments when they are evaluated (original: augmented)"
    ] = "augmented"

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, package in (("algorithms", "fedhpc.objectives"), ("criteria", CRITERIA)):
            _check_once(key, getattr(self, key))
            _check_names(key, getattr(self, key), registry.names(package))
        _check_once("datasets", tuple(self.datasets))
        if not isinstance(self.datasets, dict):
            object.__setattr__(self, "datasets", dict.fromkeys(self.datasets))
        for name, root in self.roots.items():
            _check_dataset(name, root)
        if self.stored_split and self.stratified:
            raise ConfigError("stored_split is given by the dataset, and stratified draws one; choose one of them")
        if self.test_envs is not None:
            _check_once("test_envs", self.test_envs)
            _check_envs(self.test_envs)

    @property
    def roots(self) -> dict[str, str | None]:
        """Folder of each dataset; None: embedded."""
        assert isinstance(self.datasets, dict)
        return self.datasets


def _check_once(key: str, found: tuple[Any, ...]) -> None:
    if not found:
        raise ConfigError(f"{key} must name at least one")
    if len(set(found)) < len(found):
        raise ConfigError(f"{key} names {next(n for n in found if found.count(n) > 1)} twice")


def _check_names(key: str, found: tuple[str, ...], allowed: list[str]) -> None:
    for name in found:
        if name not in allowed:
            raise ConfigError(f"{key} has '{name}'{_meant(name, allowed)}; there are: {', '.join(allowed)}")


def _meant(name: str, allowed: list[str]) -> str:
    """A hint; names in DomainBed's spelling are known."""
    return f" (did you mean '{ours(name)}'?)" if ours(name) in allowed else nearest(name.lower(), allowed)


def _check_dataset(name: str, root: str | None) -> None:
    """A known source, or a name of one's own for a folder of images."""
    known = registry.names(SOURCES)
    if name in known:
        return
    if root is None or ours(name) in known or name.lower() in known:
        _check_names("datasets", (name,), known)
    if not _NAME.fullmatch(name):
        raise ConfigError(f"datasets has '{name}'; a name of one's own has letters, digits, '_', '-' and '.' only")


def _check_envs(found: tuple[int | str | tuple[int, ...], ...]) -> None:
    for entry in found:
        for env in entry if isinstance(entry, tuple) else (entry,):
            if isinstance(env, int) and env < 0:
                raise ConfigError(f"test_envs must be at least 0, got {env}")
        if isinstance(entry, tuple):
            _check_once("test_envs", entry)


@dataclass(frozen=True)
class TrialModelConfig(Section):
    """The network of every trial. Dropout and frozen batch norm are hyperparameters."""

    name: Annotated[str, "file name in fedhpc/models; auto: by the images' size"] = AUTO
    weights: Annotated[str | None, "a file or torchvision weights name; auto: ImageNet's for ResNets; null: none"] = (
        AUTO
    )
    hidden: Annotated[tuple[int, ...], _AT_LEAST_1, "widths of an mlp's hidden layers"] = (256, 256)
    dtype: Annotated[Literal["float32", "float64"], "of weights and computations"] = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name != AUTO:
            _check_names("name", (self.name,), registry.names("fedhpc.models"))


@dataclass(frozen=True)
class TrialTransformConfig(Section):
    """Pixels to model input; null takes what the dataset asks for: ImageNet's constants for photos."""

    size: Annotated[
        int | None, _AT_LEAST_1, "photos: height and width of the model input; null: theirs, at most 224"
    ] = None
    mean: Annotated[tuple[float, ...] | None, "per channel, of pixels scaled to [0, 1]"] = None
    std: Annotated[tuple[float, ...] | None, Limits(above=0), "per channel"] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.mean is None) != (self.std is None):
            raise ConfigError("mean and std go together; give both or neither")


@dataclass(frozen=True)
class TrialCheckpointConfig(Section):
    """How much of a trial a killed job may lose, and what is left of its model."""

    seconds: Annotated[float, Limits(above=0), "between two checkpoints of a running trial"] = 300.0
    keep: Annotated[Literal["none", "last"], "models of finished trials (of chosen steps: --only ID@STEP)"] = "none"


@dataclass(frozen=True)
class QueueConfig(Section):
    """How patient workers are with each other."""

    heartbeat: Annotated[float, Limits(above=0), "seconds between signs of life"] = 15.0
    stale_after: Annotated[float, Limits(above=0), "seconds of silence after which a worker counts as dead"] = 120.0
    most_failures: Annotated[int, _AT_LEAST_1, "attempts that may raise before a trial is given up"] = 2
    most_deaths: Annotated[int, _AT_LEAST_1, "workers that may die over a trial before it is given up"] = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stale_after < 3 * self.heartbeat:
            raise ConfigError(
                f"stale_after ({self.stale_after:g}) must be at least three heartbeats ({3 * self.heartbeat:g})"
            )

    def settings(self) -> QueueSettings:
        """The same for the queue."""
        return QueueSettings(self.heartbeat, self.stale_after, self.most_failures, self.most_deaths)


@dataclass(frozen=True, kw_only=True)
class SweepConfig(Section):
    """One sweep: the YAML of `fedhpc sweep`."""

    sweep: AxesConfig
    model: TrialModelConfig = field(default_factory=TrialModelConfig)
    transform: TrialTransformConfig = field(default_factory=TrialTransformConfig)
    checkpoint: TrialCheckpointConfig = field(default_factory=TrialCheckpointConfig)
    queue: QueueConfig = field(default_factory=QueueConfig)
    device: DeviceConfig = field(default_factory=DeviceConfig)
    hang_seconds: Annotated[float, _AT_LEAST_0, "without a step for so long a rank counts as hanging; 0: never"] = (
        1800.0
    )

    def to_dict(self) -> dict[str, Any]:
        """The resolved configuration as plain values in the shape of its YAML."""
        return to_tree(self)


AXES = (
    "sweep.algorithms", "sweep.criteria", "sweep.test_envs", "sweep.n_hparams", "sweep.first_hparams", "sweep.n_trials",
    "sweep.first_trial", "sweep.datasets.",
)  # fmt: skip
"""Keys by which a sweep may grow: trials that are there already stay valid."""
HARMLESS = ("checkpoint.", "queue.", "device.name", "device.threads", "hang_seconds")
"""Keys that change no result."""


def unusual(config: SweepConfig) -> dict[str, Any]:
    """The settings of every trial that are not the defaults, by dotted key: no table means anything without them."""
    given, usual = config.to_dict(), SweepConfig(sweep=AxesConfig(config.sweep.datasets)).to_dict()
    found: dict[str, Any] = {}
    for key in diff(usual, given):
        if not key.startswith((*AXES, *HARMLESS, "sweep.profile")):
            value: Any = given
            for part in key.split("."):
                value = value[part]
            found[key] = Path(value).name if key == "model.weights" and value else value
    return found


def union(one: SweepConfig, other: SweepConfig) -> SweepConfig:
    """The smallest configuration that has the trials of two that differ in `AXES` only; else as the second."""
    a, b = one.sweep, other.sweep
    first_hparams, n_hparams = _span((a.first_hparams, a.n_hparams), (b.first_hparams, b.n_hparams))
    first_trial, n_trials = _span((a.first_trial, a.n_trials), (b.first_trial, b.n_trials))
    envs = list(dict.fromkeys([*(a.test_envs or (EACH,)), *(b.test_envs or (EACH,))]))
    if EACH in envs:
        envs = [EACH, *(entry for entry in envs if isinstance(entry, tuple))]
    sweep = replace(
        b,
        datasets={**a.roots, **b.roots},
        algorithms=tuple(dict.fromkeys([*a.algorithms, *b.algorithms])),
        criteria=tuple(dict.fromkeys([*a.criteria, *b.criteria])),
        test_envs=None if envs == [EACH] else tuple(envs),
        first_hparams=first_hparams,
        n_hparams=n_hparams,
        first_trial=first_trial,
        n_trials=n_trials,
    )
    return replace(other, sweep=sweep)


def _span(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """First and number of the numbers from the smallest to the largest of two ranges (first, number)."""
    first = min(one[0], other[0])
    return first, max(sum(one), sum(other)) - first
