"""Wide ResNet of depth 16 and width 2 (Zagoruyko and Komodakis, 2016), what DomainBed takes for 32x32 images."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from fedhpc.models._resnet import BatchNorm2d
from fedhpc.models.base import ModelOptions, Network, refuse_options

_STEM = 16
_STAGES = ((32, 1), (64, 2), (128, 2))
"""Channels of each stage, and the stride of its first block."""
_BLOCKS = 2
"""Of two convolutions each; with the stem and one shortcut per stage that makes depth 16."""


class Block(nn.Module):
    """Twice batch norm, ReLU and a 3x3 convolution, beside the input or, where the shape changes, its 1x1 convolution.

    Args:
        inputs: channels.
        outputs: channels.
        stride: of the second convolution, and of the shortcut.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.bn2 = BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, stride=stride, padding=1)
        changes = stride != 1 or inputs != outputs
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, inputs, H, W] to [B, outputs, H / stride, W / stride]."""
        hidden = self.conv1(self.bn1(x).relu())
        result: Tensor = self.conv2(self.bn2(hidden).relu()) + self.shortcut(x)
        return result


class WideResNet(Network):
    """Three stages of two blocks, batch norm, ReLU; the average over all pixels is the feature."""

    stem: ClassVar[str | None] = "conv1.weight"

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, options: ModelOptions) -> None:
        super().__init__(_STAGES[-1][0], options)
        self.conv1 = nn.Conv2d(input_shape[0], _STEM, 3, padding=1)
        blocks, channels = [], _STEM
        for outputs, first_stride in _STAGES:
            for number in range(_BLOCKS):
                blocks.append(Block(channels, outputs, first_stride if number == 0 else 1))
                channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.bn = BatchNorm2d(channels)
        self.classifier = nn.Linear(channels, num_classes)
        self.train()

    def features(self, x: Tensor) -> Tensor:
        """Map images [B, C, H, W] of any size to 128 features."""
        result: Tensor = self.bn(self.blocks(self.conv1(x))).relu().mean(dim=(2, 3))
        return result


def build(input_shape: tuple[int, int, int], num_classes: int, options: ModelOptions) -> WideResNet:
    """Build the network for images [channels, height, width]."""
    refuse_options("wide_resnet16_2", options, "hidden")
    return WideResNet(input_shape, num_classes, options)


MODEL = build
