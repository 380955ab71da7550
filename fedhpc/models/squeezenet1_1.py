"""SqueezeNet 1.1: 1.2 million weights, ImageNet-trained ones fit into 5 MB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from fedhpc.models.base import ModelOptions, Network, refuse_options, require_size

_SMALLEST = 17  # below this the third pooling has nothing left


class SqueezeNet(Network):
    """torchvision's layers up to the last fire module, averaged over the pixels, then the classifier.

    torchvision ends in a 1x1 convolution to the classes, ReLU, then the average. Averaging first and applying the
    same weights as a linear layer differs only by that ReLU (both steps are linear), and gives the feature vector
    that every model here has. A file's 1x1 kernel loads into the classifier where the class counts agree.
    """

    foreign: ClassVar[Mapping[str, str]] = {"features.": "body.", "classifier.1.": "classifier."}
    stem: ClassVar[str | None] = "body.0.weight"
    torchvision_name = "squeezenet1_1"

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, options: ModelOptions) -> None:
        import torchvision  # as dear to import as torch: only for the models that need it

        super().__init__(512, options)
        self.body = torchvision.models.squeezenet1_1(weights=None, num_classes=num_classes).features
        if input_shape[0] != 3:
            self.body[0] = nn.Conv2d(input_shape[0], 64, kernel_size=3, stride=2)
            nn.init.kaiming_uniform_(self.body[0].weight)
            nn.init.zeros_(self.body[0].bias)
        self.classifier = nn.Linear(512, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Map images [B, C, H, W] of at least 17x17 pixels to 512 features."""
        maps: Tensor = self.body(x)
        return maps.mean(dim=(2, 3))


def build(input_shape: tuple[int, int, int], num_classes: int, options: ModelOptions) -> SqueezeNet:
    """Build SqueezeNet 1.1 for images [channels, height, width]."""
    refuse_options("squeezenet1_1", options, "hidden", "freeze_bn")
    require_size("squeezenet1_1", input_shape, _SMALLEST)
    return SqueezeNet(input_shape, num_classes, options)


MODEL = build
