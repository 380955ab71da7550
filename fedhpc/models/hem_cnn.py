"""The CNN of the HEM study: two 5x5 convolutions and two wide layers (797,962 parameters on CIFAR-10)."""

from __future__ import annotations

from torch import Tensor, nn

from fedhpc.models.base import ModelOptions, Network, refuse_options, require_size

_SMALLEST = 16  # 16 -> 12 -> 6 -> 2 -> 1 pixels


class HemCnn(Network):
    """Twice [5x5 convolution with 64 filters, no padding; ReLU; 2x2 max pooling], then 384 and 192 units with ReLU."""

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, options: ModelOptions) -> None:
        super().__init__(192, options)
        channels, height, width = input_shape
        self.body = nn.Sequential(
            nn.Conv2d(channels, 64, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * _after_pooling(height) * _after_pooling(width), 384),
            nn.ReLU(),
            nn.Linear(384, 192),
            nn.ReLU(),
        )
        self.classifier = nn.Linear(192, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Map images [B, C, H, W] to the 192 units before the classifier."""
        hidden: Tensor = self.body(x)
        return hidden


def _after_pooling(side: int) -> int:
    for _ in range(2):
        side = (side - 4) // 2
    return side


def build(input_shape: tuple[int, int, int], num_classes: int, options: ModelOptions) -> HemCnn:
    """Build the CNN for images [channels, height, width] of at least 16x16 pixels."""
    refuse_options("hem_cnn", options, "hidden", "freeze_bn")
    require_size("hem_cnn", input_shape, _SMALLEST)
    return HemCnn(input_shape, num_classes, options)


MODEL = build
