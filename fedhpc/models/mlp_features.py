"""DomainBed's MLP for vector data: its last hidden layer has no nonlinearity."""

from __future__ import annotations

from math import prod

from torch import Tensor, nn

from fedhpc.errors import ConfigError
from fedhpc.models._layers import Perceptron
from fedhpc.models.base import ModelOptions, Network, refuse_options


class MlpFeatures(Network):
    """`hidden` holds the widths of all linear layers before the classifier; dropout acts inside, before each ReLU."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int, options: ModelOptions) -> None:
        widths = [prod(input_shape), *options.hidden]
        if len(widths) == 2:
            widths.insert(1, widths[1])  # the smallest one has two linear layers
        if len(widths) < 3 or min(widths) < 1:
            raise ConfigError(f"model.hidden: give one or more widths of at least 1, got {list(options.hidden)}")
        super().__init__(widths[-1], options)
        self.body = Perceptron(widths, options.dropout)
        self.dropout = nn.Dropout(0.0)
        self.classifier = nn.Linear(widths[-1], num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Map input [B, ...] to the last layer before the classifier, [B, num_features]."""
        features: Tensor = self.body(x.flatten(1))
        return features


def build(input_shape: tuple[int, int, int], num_classes: int, options: ModelOptions) -> MlpFeatures:
    """Build the perceptron for inputs of any shape."""
    refuse_options("mlp_features", options, "freeze_bn")
    return MlpFeatures(input_shape, num_classes, options)


MODEL = build
