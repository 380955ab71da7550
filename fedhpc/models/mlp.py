"""Multi-layer perceptron on flattened input."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from torch import Tensor, nn

from fedhpc.errors import ConfigError
from fedhpc.models.base import ModelOptions, Network, refuse_options


class Mlp(Network):
    """Linear and ReLU per entry of `hidden`, then the classifier; without hidden layers a linear model."""

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, options: ModelOptions) -> None:
        widths = [prod(input_shape), *options.hidden]
        if min(widths) < 1:
            raise ConfigError(f"model.hidden: widths must be at least 1, got {list(options.hidden)}")
        super().__init__(widths[-1], options)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.classifier = nn.Linear(widths[-1], num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Map input [B, ...] to the last hidden layer [B, num_features]."""
        hidden: Tensor = self.body(x.flatten(1))
        return hidden


def build(input_shape: tuple[int, int, int], num_classes: int, options: ModelOptions) -> Mlp:
    """Build the perceptron for images [channels, height, width]."""
    refuse_options("mlp", options, "freeze_bn")
    return Mlp(input_shape, num_classes, options)


MODEL = build
