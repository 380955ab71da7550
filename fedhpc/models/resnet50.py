"""ResNet-50 with 2,048 features."""

from __future__ import annotations

from functools import partial

from fedhpc.models._resnet import build

MODEL = partial(build, "resnet50")
