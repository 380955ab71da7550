"""ResNets: torchvision's constructors behind our contract; the files resnet18.py and so on name the depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional

from fedhpc.models.base import ModelOptions, Network, refuse_options


class BatchNorm2d(nn.BatchNorm2d):
    """Batch norm that survives a batch with one value per channel, such as a last batch of one small image.

    torch refuses to train on it, since a variance needs two values; such a batch uses the stored statistics.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise [B, C, H, W]."""
        if self.training and input.numel() == input.shape[1]:
            return functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
            )
        return super().forward(input)


class ResNet(Network):
    """A torchvision ResNet without its `fc`; all other state-dict keys are torchvision's.

    Another number of input channels than 3 replaces the first convolution (7x7, stride 2, 64 filters, no bias);
    loaded weights are fitted to it by `fedhpc.models.base.repeat_channels`.
    """

    foreign: ClassVar[Mapping[str, str]] = {"fc.": "classifier."}
    stem: ClassVar[str | None] = "conv1.weight"

    def __init__(self, name: str, input_shape: tuple[int, int, int], num_classes: int, options: ModelOptions) -> None:
        import torchvision  # as dear to import as torch: only for the models that need it

        source = getattr(torchvision.models, name)(weights=None, num_classes=num_classes, norm_layer=BatchNorm2d)
        super().__init__(source.fc.in_features, options)
        self.torchvision_name = name
        self.conv1 = source.conv1
        if input_shape[0] != 3:
            self.conv1 = nn.Conv2d(input_shape[0], 64, kernel_size=7, stride=2, padding=3, bias=False)
            nn.init.kaiming_normal_(self.conv1.weight, mode="fan_out", nonlinearity="relu")
        self.bn1, self.relu, self.maxpool = source.bn1, source.relu, source.maxpool
        self.layer1, self.layer2, self.layer3, self.layer4 = source.layer1, source.layer2, source.layer3, source.layer4
        self.classifier = source.fc
        self.train()

    def features(self, x: Tensor) -> Tensor:
        """Map images [B, C, H, W] of any size to the average over the last block's pixels."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return x.mean(dim=(2, 3))


def build(name: str, input_shape: tuple[int, int, int], num_classes: int, options: ModelOptions) -> ResNet:
    """Build the ResNet `name` for images [channels, height, width]."""
    refuse_options(name, options, "hidden")
    return ResNet(name, input_shape, num_classes, options)
