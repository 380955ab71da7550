"""From a trial's specification to its network and transforms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhpc import registry
from fedhpc.data.schema import Manifest
from fedhpc.errors import ConfigError
from fedhpc.objectives.hparams import Value, hparams_for
from fedhpc.sweep.settings import AUTO, SweepConfig
from fedhpc.sweep.trials import TrialSpec

if TYPE_CHECKING:
    from fedhpc.data.augment import PhotoTransform
    from fedhpc.data.transforms import Transform
    from fedhpc.models.base import Network

IMAGENET = "IMAGENET1K_V1"
"""What ResNets start from, by torchvision's name."""
RESNETS = ("resnet18", "resnet50")
_MLPS = ("mlp", "mlp_features")
_SMALLEST_PHOTO, _PHOTO_SIZE = 64, 224
_OF_SIZE = {(28, 28): "mnist_cnn", (32, 32): "wide_resnet16_2"}
_COLOURS = 3

Draw = tuple[str, str, int, int]
"""What a trial's hyperparameters depend on: dataset, algorithm, hparams seed, trial seed."""


def setup_of(config: SweepConfig) -> dict[str, Any]:
    """The part of a sweep's configuration that belongs to every trial's identity, where it is not the default."""
    default = SweepConfig(sweep=config.sweep)
    setup: dict[str, Any] = {}
    for section in ("model", "transform"):
        given, usual = config.to_dict()[section], default.to_dict()[section]
        changed = {key: value for key, value in given.items() if value != usual[key]}
        if changed:
            setup[section] = changed
    if (weights := setup.get("model", {}).get("weights")) is not None:
        setup["model"]["weights"] = Path(weights).name  # where the file lies is no part of a trial
    if config.sweep.stratified:
        setup["stratified"] = True
    if config.sweep.stored_split:
        setup["stored_split"] = True
    if not config.sweep.train_accuracy:
        setup["train_accuracy"] = False
    if config.sweep.validation != "augmented":
        setup["validation"] = config.sweep.validation
    if config.sweep.fixed_draws:
        setup["fixed_draws"] = True
    return setup


def shared_fields(config: SweepConfig) -> dict[str, Any]:
    """The fields that all trials of a sweep have in common."""
    sweep = config.sweep
    return {
        "holdout_fraction": sweep.holdout_fraction,
        "profile": sweep.profile,
        "hparams": dict(sweep.hparams),
        "setup": setup_of(config),
    }


def draw_of(trial: TrialSpec) -> Draw:
    """What the hyperparameters of a trial depend on."""
    return trial.dataset, trial.algorithm, trial.hparams_seed, trial.trial_seed


def hparams_of(spec: TrialSpec) -> dict[str, Value]:
    """All hyperparameters of a trial: defaults or draws, then what is given."""
    repetition = 0 if spec.setup.get("fixed_draws") else spec.trial_seed
    drawn = hparams_for(spec.algorithm, spec.dataset, spec.hparams_seed, repetition, spec.profile)  # type: ignore[arg-type]
    return {**drawn, **{n: v for n, v in spec.hparams.items() if n in drawn}}


@dataclass(frozen=True)
class ModelChoice:
    """The network of a trial.

    Attributes:
        name: file name in fedhpc/models.
        weights: what it starts from; None: fresh.
        hidden: widths, for the mlps.
        dropout: before the classifier.
        freeze_bn: whether batch norm stays as it is.
        dtype: name of the weights' type.
    """

    name: str
    weights: str | None
    hidden: tuple[int, ...]
    dropout: float
    freeze_bn: bool
    dtype: str


def choose_model(setup: Mapping[str, Any], hparams: Mapping[str, Value], height: int, width: int) -> ModelChoice:
    """The network that a trial's setup and hyperparameters ask for, for images of a size.

    As in the original 28x28 means the MNIST network, 32x32 a Wide ResNet and large images a ResNet; small images of
    another size get the MLP, which the original keeps for vectors.
    """
    model = setup.get("model", {})
    name = model.get("name", AUTO)
    if name == AUTO:
        if min(height, width) >= _SMALLEST_PHOTO:
            name = "resnet18" if hparams["resnet18"] else "resnet50"
        else:
            name = _OF_SIZE.get((height, width), "mlp_features")
    is_resnet = name in RESNETS
    weights = model.get("weights", AUTO)
    if weights == AUTO:
        weights = IMAGENET if is_resnet else None
    hidden = tuple(model.get("hidden", (256, 256))) if name in _MLPS else (64,)
    dropout = float(hparams["resnet_dropout"]) if is_resnet else 0.0
    return ModelChoice(
        name, weights, hidden, dropout, is_resnet and bool(hparams["freeze_bn"]), model.get("dtype", "float32")
    )


def build_model(
    choice: ModelChoice,
    shape: tuple[int, int, int],
    num_classes: int,
    hparams: Mapping[str, Value],
    weights_file: str | None = None,
) -> Network:
    """Make the network on the CPU; fresh layers draw from torch's global generator.

    Args:
        choice: which one.
        shape: of the model input, [channels, height, width].
        num_classes: of the dataset.
        hparams: of the trial.
        weights_file: where the file of `choice.weights` lies, if it is one.

    Raises:
        ConfigError: it does not fit the images, or the weights do not fit it.
    """
    import torch

    from fedhpc.models._layers import deepen_classifier
    from fedhpc.models.base import ModelOptions
    from fedhpc.models.weights import load_weights

    options = ModelOptions(dropout=choice.dropout, freeze_bn=choice.freeze_bn)
    if choice.name in _MLPS:
        options = replace(options, hidden=choice.hidden)
    model: Network = registry.load("fedhpc.models", choice.name).MODEL(shape, num_classes, options)
    if choice.weights is not None:
        load_weights(model, weights_file or choice.weights)
    if hparams["nonlinear_classifier"]:
        deepen_classifier(model)
    return model.to(getattr(torch, choice.dtype))


def input_size(setup: Mapping[str, Any], height: int, width: int, channels: int) -> tuple[int, int]:
    """Height and width of the model input: photos are resized to a square, everything else stays as it is."""
    size = setup.get("transform", {}).get("size")
    if not _are_photos(height, width, channels):
        if size is not None:
            raise ConfigError(f"transform.size is for photos; images of {height}x{width}x{channels} stay as they are")
        return height, width
    side = int(size) if size is not None else min(height, width, _PHOTO_SIZE)
    return side, side


def _are_photos(height: int, width: int, channels: int) -> bool:
    return channels == _COLOURS and min(height, width) >= _SMALLEST_PHOTO


def build_transform(
    setup: Mapping[str, Any], manifest: Manifest, augment: bool = False, dtype: str = "float32"
) -> Transform | PhotoTransform:
    """Pixels to model input: photos as the original treats them, everything else scaled to 0 ... 1.

    Raises:
        ConfigError: constants that do not fit the images' channels.
    """
    import torch

    from fedhpc.data.augment import PhotoTransform
    from fedhpc.data.transforms import Transform

    given = setup.get("transform", {})
    constants = {key: tuple(given[key]) for key in ("mean", "std") if given.get(key) is not None}
    if constants and len(constants["mean"]) != manifest.channels:
        raise ConfigError(
            f"transform.mean and std have {len(constants['mean'])} numbers, the images of {manifest.name} have "
            f"{manifest.channels} channels"
        )
    kind = getattr(torch, dtype)
    height, width, channels = manifest.height, manifest.width, manifest.channels
    size, _ = input_size(setup, height, width, channels)
    if _are_photos(height, width, channels):
        return PhotoTransform(size, augment, dtype=kind, **constants)
    return Transform(manifest.pixel_max, constants.get("mean"), constants.get("std"), dtype=kind)
