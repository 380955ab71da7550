"""The transforms of the photo datasets: plain resizing, and random crops, mirroring and colours.

Work is done on whole batches, on the device they lie on, and gives what torchvision's transforms give on Pillow
images: exactly for the plain way; for the random way with the same distribution of parameters, and from equal
parameters the same pixels up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from fedhpc.data._resize import crop_matrix, resize_exactly
from fedhpc.data.transforms import Transform
from fedhpc.errors import ConfigError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

AREA = (0.7, 1.0)
RATIO = (3 / 4, 4 / 3)
STRENGTH = 0.3
"""Brightness, contrast and saturation in 1 ± this, hue in ± this (of a full turn)."""
GRAY_PROBABILITY = 0.1

_TRIES = 10
_GRAY = (0.299, 0.587, 0.114)
_BYTE = 255
_CPU_CHUNK = 1
"""Samples processed together on a CPU: one fits into the cache."""


@dataclass(frozen=True)
class Parameters:
    """What was drawn for a batch; every tensor has one row per sample.

    Attributes:
        top: first row of the crop.
        left: first column.
        height: of the crop.
        width: of the crop.
        flip: whether it is mirrored.
        order: [n, 4] in which order brightness (0), contrast (1), saturation (2) and hue (3) are changed.
        factors: [n, 4] by how much.
        gray: whether it becomes gray.
    """

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor
    flip: Tensor
    order: Tensor
    factors: Tensor
    gray: Tensor

    def at(self, rows: slice) -> Parameters:
        """Return those of some samples."""
        return Parameters(*(getattr(self, f.name)[rows] for f in fields(self)))


def draw(n: int, height: int, width: int, generator: torch.Generator) -> Parameters:
    """Draw the parameters of n samples with torchvision's distributions; on the generator's device."""

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return torch.rand(n, *shape, generator=generator, device=generator.device) * (high - low) + low

    area = uniform(*AREA, _TRIES) * (height * width)
    ratio = uniform(math.log(RATIO[0]), math.log(RATIO[1]), _TRIES).exp()
    widths, heights = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()
    fits = (widths >= 1) & (widths <= width) & (heights >= 1) & (heights <= height)
    whole_height, whole_width = _central(height, width)
    # The last column is the way out when no try fits: the largest crop of an allowed shape, in the middle.
    heights = torch.cat([heights, torch.full_like(heights[:, :1], whole_height)], 1)
    widths = torch.cat([widths, torch.full_like(widths[:, :1], whole_width)], 1)
    found = fits.any(1)
    first = torch.where(found, fits.int().argmax(1), _TRIES)[:, None]
    h, w = heights.gather(1, first)[:, 0], widths.gather(1, first)[:, 0]
    top, left = (uniform(0, 1) * (height - h + 1)).floor(), (uniform(0, 1) * (width - w + 1)).floor()
    jitter = uniform(1 - STRENGTH, 1 + STRENGTH, 4)
    jitter[:, 3] -= 1
    return Parameters(
        top=torch.where(found, top.minimum(height - h), ((height - h) / 2).floor()),
        left=torch.where(found, left.minimum(width - w), ((width - w) / 2).floor()),
        height=h,
        width=w,
        flip=uniform(0, 1) < 0.5,
        order=uniform(0, 1, 4).argsort(1),
        factors=jitter,
        gray=uniform(0, 1) < GRAY_PROBABILITY,
    )


def _central(height: int, width: int) -> tuple[int, int]:
    ratio = width / height
    if ratio < RATIO[0]:
        return round(width / RATIO[0]), width
    if ratio > RATIO[1]:
        return height, round(height * RATIO[1])
    return height, width


@dataclass(frozen=True)
class PhotoTransform:
    """Stored photos [n, H, W, 3] to model input [n, 3, size, size] in channels_last memory.

    Attributes:
        size: height and width of the model input.
        augment: whether training changes images at random.
        mean: per channel, in units of 0 to 1.
        std: per channel.
        dtype: floating-point type of the model input.
    """

    size: int = 224
    augment: bool = True
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"data.transform.size must be at least 1, got {self.size}")

    def __call__(self, x: Tensor, generator: torch.Generator | None = None, train: bool = False) -> Tensor:
        """Return model input for uint8 pixels; floating-point input is returned untouched.

        Args:
            x: uint8 [n, H, W, 3], or model input.
            generator: source of the draws; a CPU generator gives the same draws on every device.
            train: whether to augment.

        Raises:
            ConfigError: images without three channels.
            ValueError: augmentation without a generator.
        """
        if x.is_floating_point():
            return x
        if x.shape[3] != 3:
            raise ConfigError(f"data.transform: photos have 3 channels, these images have {x.shape[3]}")
        if not (train and self.augment):
            return self._normalise(resize_exactly(x, self.size, self.size))
        if generator is None:
            raise ValueError("random augmentation needs a generator")
        return self.apply(x, draw(len(x), x.shape[1], x.shape[2], generator))

    def apply(self, x: Tensor, parameters: Parameters) -> Tensor:
        """Augment uint8 [n, H, W, 3] with given parameters."""
        here = Parameters(*(getattr(parameters, f.name).to(x.device, non_blocking=True) for f in fields(parameters)))
        step = _CPU_CHUNK if x.device.type == "cpu" else max(len(x), 1)
        out = torch.empty(len(x), self.size, self.size, 3, dtype=self.dtype, device=x.device).permute(0, 3, 1, 2)
        for start in range(0, len(x), step):
            rows = slice(start, start + step)
            changed = self._crop(x[rows], here.at(rows))
            _jitter(changed, here.factors[rows], parameters.order[rows])
            _make_gray(changed, parameters.gray[rows])
            out[rows].copy_(self._scale(changed.to(self.dtype)))
        return out

    def _crop(self, x: Tensor, p: Parameters) -> Tensor:
        """Cut out, resize and mirror; float [n, 3, size, size] with whole values from 0 to 255."""
        if x.device.type == "cpu":
            return torch.stack([self._crop_one(image, p.at(slice(i, i + 1))) for i, image in enumerate(x)])
        _, height, width, _ = x.shape
        rows = crop_matrix(p.top, p.height, torch.zeros_like(p.flip), height, self.size)
        columns = crop_matrix(p.left, p.width, p.flip, width, self.size)
        planes = x.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
        return torch.matmul(torch.matmul(rows[:, None], planes), columns.transpose(1, 2)[:, None]).round_()

    def _crop_one(self, image: Tensor, p: Parameters) -> Tensor:
        """The same for one uint8 [H, W, 3]; on a CPU Pillow is several times faster than products of matrices."""
        top, left, height, width = (int(v) for v in (p.top, p.left, p.height, p.width))
        resized = resize_exactly(image[None, top : top + height, left : left + width], self.size, self.size)[0]
        planes = resized.permute(2, 0, 1)
        return (planes.flip(2) if p.flip else planes).to(torch.float32, memory_format=torch.contiguous_format)

    def _normalise(self, pixels: Tensor) -> Tensor:
        return Transform(255, self.mean, self.std, dtype=self.dtype)(pixels)

    def _scale(self, v: Tensor) -> Tensor:
        mean, std = (torch.tensor(t, dtype=v.dtype, device=v.device).view(1, -1, 1, 1) for t in (self.mean, self.std))
        return v.div_(255).sub_(mean).div_(std)


def _jitter(v: Tensor, factors: Tensor, order: Tensor) -> None:
    """Change the colours of float [n, 3, H, W] in place, each sample's four ways in its own order.

    Samples whose next change is the same are changed together; `order` lies on the CPU, so no device is waited for.
    """
    for place in range(len(_CHANGES)):
        for kind, change in enumerate(_CHANGES):
            chosen = torch.nonzero(order[:, place] == kind)[:, 0].to(v.device, non_blocking=True)
            if len(chosen) == len(v):
                change(v, factors[:, kind].view(-1, 1, 1, 1))
            elif len(chosen):
                part = v[chosen]
                change(part, factors[chosen, kind].view(-1, 1, 1, 1))
                v[chosen] = part


def _make_gray(v: Tensor, gray: Tensor) -> None:
    chosen = torch.nonzero(gray)[:, 0].to(v.device, non_blocking=True)
    if len(chosen):
        v[chosen] = _luma(v[chosen]).expand(-1, 3, -1, -1)


def _luma(v: Tensor) -> Tensor:
    """Gray value [n, 1, H, W], rounded."""
    gray = v[:, 0:1] * _GRAY[0]
    return gray.add_(v[:, 1:2], alpha=_GRAY[1]).add_(v[:, 2:3], alpha=_GRAY[2]).round_()


def _cut_(v: Tensor) -> None:
    """Back to whole values from 0 to 255; Pillow cuts the fraction off after blending."""
    v.clamp_(0, 255).floor_()


def _brightness(v: Tensor, factor: Tensor) -> None:
    _cut_(v.mul_(factor))


def _contrast(v: Tensor, factor: Tensor) -> None:
    mean = _luma(v).mean((1, 2, 3), keepdim=True).add_(0.5).floor_()
    _cut_(v.sub_(mean).mul_(factor).add_(mean))


def _saturation(v: Tensor, factor: Tensor) -> None:
    gray = _luma(v)
    _cut_(v.sub_(gray).mul_(factor).add_(gray))


def _hue(v: Tensor, turn: Tensor) -> None:
    """Turn the hue by a share of the full circle; hue and saturation pass through 8 bits on the way, as in Pillow."""
    r, g, b = v[:, 0], v[:, 1], v[:, 2]
    high, low = v.amax(1), v.amin(1)
    spread = high - low
    # Six sectors of the circle, from red over green and blue back to red.
    hue = torch.where(high == r, g - b, torch.where(high == g, b - r, r - g)).div_(spread.clamp_min(1))
    hue += torch.where(high == r, 0.0, torch.where(high == g, 2.0, 4.0))
    hue.div_(6).add_(1).frac_().mul_(_BYTE).floor_().add_(turn[:, 0].mul(_BYTE).trunc_())
    hue.sub_(hue.div(256).floor_().mul_(256)).mul_(6 / _BYTE)
    spread.mul_(_BYTE).div_(high.clamp_min(1)).floor_().mul_(high).div_(_BYTE)
    torch.sub(hue, 3, out=r).abs_().sub_(1)
    torch.sub(hue, 2, out=g).abs_().neg_().add_(2)
    torch.sub(hue, 4, out=b).abs_().neg_().add_(2)
    v.clamp_(0, 1).mul_(spread[:, None]).add_((high - spread)[:, None]).round_()


_CHANGES: tuple[Callable[[Tensor, Tensor], None], ...] = (_brightness, _contrast, _saturation, _hue)
