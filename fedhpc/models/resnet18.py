"""ResNet-18 with 512 features."""

from __future__ import annotations

from functools import partial

from fedhpc.models._resnet import build

MODEL = partial(build, "resnet18")
