"""The YAML of a sweep: `fedhpc.config.load(SweepConfig, path)`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fedhpc import registry
from fedhpc.config import DeviceConfig, Limits, Section, to_tree
from fedhpc.errors import ConfigError, nearest
from fedhpc.report.selection import PACKAGE as CRITERIA
from fedhpc.sweep.queue_files import QueueSettings

STUDY = ("erm", "irm", "groupdro", "mixup", "mldg", "coral", "mmd", "dann", "cdann")
"""The nine algorithms of the study, in its order."""
ALL_CRITERIA = ("training_domain_validation", "leave_one_domain_out", "oracle")
AUTO = "auto"

_AT_LEAST_1 = Limits(at_least=1)
_AT_LEAST_0 = Limits(at_least=0)
_Number = bool | int | float


@dataclass(frozen=True)
class AxesConfig(Section):
    """What the sweep runs over, and how each trial trains."""

    datasets: Annotated[dict[str, str | None], "dataset: folder that `fedhpc prepare` wrote; null: embedded"]
    algorithms: Annotated[tuple[str, ...], "file names in fedhpc/objectives"] = STUDY
    criteria: Annotated[tuple[str, ...], "only the trials that these need are run"] = ALL_CRITERIA
    test_envs: Annotated[tuple[int, ...] | None, _AT_LEAST_0, "environments to be tested on; null: each"] = None
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
    hparams: Annotated[dict[str, _Number], "hyperparameters that are given, whatever the draw"] = field(
        default_factory=dict
    )
    train_accuracy: Annotated[bool, "evaluate what training environments were trained on, too"] = True
    validation: Annotated[
        Literal["augmented", "plain"], "images of training environments when they are evaluated (original: augmented)"
    ] = "augmented"

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, package in (("algorithms", "fedhpc.objectives"), ("criteria", CRITERIA)):
            _check_names(key, getattr(self, key), registry.names(package))
        _check_names("datasets", tuple(self.datasets), None)


def _check_names(key: str, found: tuple[str, ...], allowed: list[str] | None) -> None:
    if not found:
        raise ConfigError(f"{key} must name at least one")
    if len(set(found)) < len(found):
        raise ConfigError(f"{key} names {next(n for n in found if found.count(n) > 1)} twice")
    for name in found if allowed is not None else ():
        if name not in allowed:  # type: ignore[operator]
            raise ConfigError(
                f"{key} has '{name}'{nearest(name, list(allowed or ()))}; there are: {', '.join(allowed or ())}"
            )


@dataclass(frozen=True)
class TrialModelConfig(Section):
    """The network of every trial. Dropout and frozen batch norm are hyperparameters."""

    name: Annotated[str, "file name in fedhpc/models; auto: by the images' size"] = AUTO
    weights: Annotated[str | None, "a file or torchvision weights name; auto: ImageNet's for ResNets; null: none"] = (
        AUTO
    )
    hidden: Annotated[tuple[int, ...], _AT_LEAST_1, "widths of an mlp's hidden layers"] = (256, 256)
    dtype: Literal["float32", "float64"] = "float32"

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
    """How much of a trial a killed job may lose."""

    seconds: Annotated[float, Limits(above=0), "between two checkpoints of a running trial"] = 300.0


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

    def to_dict(self) -> dict[str, Any]:
        """The resolved configuration as plain values in the shape of its YAML."""
        return to_tree(self)


AXES = (
    "sweep.algorithms", "sweep.criteria", "sweep.test_envs", "sweep.n_hparams", "sweep.first_hparams", "sweep.n_trials",
    "sweep.first_trial", "sweep.datasets.",
)  # fmt: skip
"""Keys by which a sweep may grow: trials that are there already stay valid."""
HARMLESS = ("checkpoint.", "queue.", "device.name", "device.threads")
"""Keys that change no result."""
