"""The MNIST CNN of DomainBed (arXiv 2007.01434): four 3x3 convolutions with group norm."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from fedhpc.models.base import ModelOptions, Network, refuse_options

_GROUPS = 8


class MnistCnn(Network):
    """After each convolution ReLU, then GroupNorm (in this order); the average over all pixels is the feature."""

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, options: ModelOptions) -> None:
        super().__init__(128, options)
        self.conv1 = nn.Conv2d(input_shape[0], 64, 3, padding=1)
        self.conv2 = nn.Conv2d(64, 128, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(128, 128, 3, padding=1)
        self.conv4 = nn.Conv2d(128, 128, 3, padding=1)
        self.bn0 = nn.GroupNorm(_GROUPS, 64)
        self.bn1 = nn.GroupNorm(_GROUPS, 128)
        self.bn2 = nn.GroupNorm(_GROUPS, 128)
        self.bn3 = nn.GroupNorm(_GROUPS, 128)
        self.classifier = nn.Linear(128, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Map images [B, C, H, W] of any size to 128 features."""
        x = self.bn0(functional.relu(self.conv1(x)))
        x = self.bn1(functional.relu(self.conv2(x)))
        x = self.bn2(functional.relu(self.conv3(x)))
        x = self.bn3(functional.relu(self.conv4(x)))
        return x.mean(dim=(2, 3))


def build(input_shape: tuple[int, int, int], num_classes: int, options: ModelOptions) -> MnistCnn:
    """Build the CNN for images [channels, height, width]."""
    refuse_options("mnist_cnn", options, "hidden", "freeze_bn")
    return MnistCnn(input_shape, num_classes, options)


MODEL = build
