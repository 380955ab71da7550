"""From stored pixels to model input, and random augmentation: on whole batches, on the device they lie on."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedhpc.errors import ConfigError

_LARGE = 1 << 14
"""Images with more values are scaled one by one on a CPU, so that each stays in its cache."""


@dataclass(frozen=True)
class Transform:
    """Pixels to model input: v = x / pixel_max, then (v - mean) / std per channel.

    In training each image is first mirrored with probability 1/2 (`flip`) and cut back to its size at a random offset
    from a zero border of `crop_pad` pixels, as plain PyTorch pipelines do before they normalise.

    Attributes:
        pixel_max: largest stored value (255; 16 for the embedded digits).
        mean: one number per channel, in units of v; None leaves v as it is.
        std: one positive number per channel.
        flip: mirror left and right at random when training.
        crop_pad: border in pixels for the random crop when training; 0 turns it off.
        dtype: floating-point type of the model input.
    """

    pixel_max: float = 255
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    flip: bool = False
    crop_pad: int = 0
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        if not self.pixel_max > 0:
            raise ConfigError(f"data: pixel_max must be positive, got {self.pixel_max}")
        if (self.mean is None) != (self.std is None):
            raise ConfigError("data.transform: give mean and std together, or neither")
        if self.std is not None and not all(s > 0 for s in self.std):
            raise ConfigError(f"data.transform.std must be positive, got {list(self.std)}")
        if self.crop_pad < 0:
            raise ConfigError(f"data.transform.crop_pad must be at least 0, got {self.crop_pad}")

    @property
    def is_random(self) -> bool:
        """Whether training needs a generator."""
        return self.flip or self.crop_pad > 0

    def __call__(self, x: Tensor, generator: torch.Generator | None = None, train: bool = False) -> Tensor:
        """Return model input [n, C, H, W] in channels_last memory for uint8 pixels [n, H, W, C].

        Floating-point input is returned untouched: it is model input already.

        Args:
            x: pixels, or model input.
            generator: source of the augmentation's draws; a CPU generator gives the same draws on every device.
            train: whether to augment.

        Raises:
            ConfigError: mean and std do not fit the channels.
            ValueError: augmentation without a generator.
        """
        if x.is_floating_point():
            return x
        if train and self.is_random:
            if generator is None:
                raise ValueError("random augmentation needs a generator")
            x = self._augment(x, generator)
        if x.device.type == "cpu" and x[0:1].numel() > _LARGE:
            v = torch.empty(x.shape, dtype=self.dtype)
            for image, out in zip(x, v, strict=True):
                self._scale_(out.copy_(image))
        else:
            v = self._scale_(x.to(self.dtype))
        # NHWC in memory, seen as NCHW, is channels_last: no copy.
        return v.permute(0, 3, 1, 2)

    def _scale_(self, v: Tensor) -> Tensor:
        """Bring values of pixels [..., W, C] to model input, in place."""
        v.div_(self.pixel_max)
        if self.mean is None or self.std is None:
            return v
        width, channels = v.shape[-2:]
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != channels:
                raise ConfigError(
                    f"data.transform.{name} has {len(values)} numbers, the images have {channels} channels"
                )
        # Seen as rows of W·C values, since vector instructions find nothing to do in runs of C.
        v.flatten(-2).sub_(_row(tuple(self.mean), width, v.dtype, v.device)).div_(
            _row(tuple(self.std), width, v.dtype, v.device)
        )
        return v

    def _augment(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Mirror and crop each image by its own draws: one gather over the zero-padded batch."""
        n, height, width, _ = x.shape

        def draw(high: int) -> Tensor:
            return torch.randint(high, (n, 1), generator=generator, device=generator.device).to(x.device)

        shifts = 2 * self.crop_pad + 1
        rows = draw(shifts) + torch.arange(height, device=x.device)
        columns = draw(shifts) + torch.arange(width, device=x.device)
        if self.flip:
            columns = torch.where(draw(2).bool(), columns.flip(1), columns)
        padded = functional.pad(x, (0, 0, *[self.crop_pad] * 4)) if self.crop_pad else x
        return padded[torch.arange(n, device=x.device)[:, None, None], rows[:, :, None], columns[:, None, :]]


@functools.lru_cache(maxsize=64)
def _row(values: tuple[float, ...], width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The numbers of a row of pixels: one per channel, over and over; never to be changed."""
    return torch.tensor(values, dtype=dtype, device=device).repeat(width)
