"""What every model is: features, dropout, one linear classifier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedhpc.errors import ConfigError


@dataclass(frozen=True)
class ModelOptions:
    """Options of the `model` section that change the network itself.

    Attributes:
        hidden: widths of the hidden layers (mlp only).
        dropout: probability of zeroing a feature before the classifier.
        freeze_bn: batch norm always uses its stored statistics, also in training; its affine weights still train.
    """

    hidden: tuple[int, ...] = (64,)
    dropout: float = 0.0
    freeze_bn: bool = False


class Network(nn.Module):
    """A model whose last layer is `classifier`: subclasses define `features`.

    Subclasses call `super().__init__` with their numbers and then build their layers; layers are initialised from
    torch's global generator in the order in which they are built, so a caller that seeds it gets the same bits.

    Attributes:
        num_features: length of the feature vector.
        classifier: the last layer, [num_features] -> [num_classes].
        foreign: prefixes of state-dict keys in torchvision's files -> ours, where they differ.
        stem: state-dict key of the first convolution's kernel, where a file's may be fitted to other input channels.
        torchvision_name: name of the torchvision model whose published weights fit, if any.
    """

    foreign: ClassVar[Mapping[str, str]] = {}
    stem: ClassVar[str | None] = None
    torchvision_name: str | None = None
    classifier: nn.Linear

    def __init__(self, num_features: int, options: ModelOptions) -> None:
        super().__init__()
        if not 0 <= options.dropout < 1:
            raise ConfigError(f"model.dropout must be at least 0 and less than 1, got {options.dropout}")
        self.num_features = num_features
        self.freeze_bn = options.freeze_bn
        self.dropout = nn.Dropout(options.dropout)

    def features(self, x: Tensor) -> Tensor:
        """Map model input [B, C, H, W] to features [B, num_features]: the last hidden layer after its nonlinearity."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Map model input [B, C, H, W] to logits [B, num_classes]."""
        logits: Tensor = self.classifier(self.dropout(self.features(x)))
        return logits

    def train(self, mode: bool = True) -> Network:
        """Switch between training and evaluation; frozen batch norm stays in evaluation mode."""
        super().train(mode)
        if self.freeze_bn:
            for module in self.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self


def refuse_options(name: str, options: ModelOptions, *keys: str) -> None:
    """Raise ConfigError if one of `keys`, which the model does not have, differs from its default."""
    for key in keys:
        value, default = getattr(options, key), getattr(ModelOptions(), key)
        if value != default:
            shown, unused = (list(v) if isinstance(v, tuple) else v for v in (value, default))
            raise ConfigError(f"model.{key}: {name} has no such option, leave it out or at {unused} (got {shown})")


def require_size(name: str, input_shape: tuple[int, int, int], smallest: int) -> None:
    """Raise ConfigError if images [channels, height, width] are smaller than the layers can take."""
    _, height, width = input_shape
    if min(height, width) < smallest:
        raise ConfigError(
            f"model.name: {name} needs images of at least {smallest}x{smallest} pixels, the dataset has "
            f"{height}x{width}; prepare it with a larger --size or choose another model"
        )


def repeat_channels(kernel: Tensor, channels: int) -> Tensor:
    """Fit a first convolution's kernel [out, c, h, w] to other input channels: new channel i copies channel i mod c.

    There is no rescaling (DomainBed's rule).
    """
    return kernel[:, torch.arange(channels) % kernel.shape[1]]
