"""Bilinear resizing with antialiasing on whole batches: exactly as Pillow rounds, or by a matrix per sample."""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor

_PRECISION_BITS = 22
"""Pillow's fixed point for 8-bit images: weights times 2^22, so that 255 times their sum fits into 31 bits."""


def resize_exactly(pixels: Tensor, height: int, width: int) -> Tensor:
    """Resize uint8 images [n, H, W, C], C 1 or 3, to [n, height, width, C] as Pillow's `resize(BILINEAR)` does.

    On a CPU Pillow itself does it; elsewhere its arithmetic is repeated bit for bit.
    """
    if tuple(pixels.shape[1:3]) == (height, width):
        return pixels
    return (_by_pillow if pixels.device.type == "cpu" else resize_by_taps)(pixels, height, width)


def _by_pillow(pixels: Tensor, height: int, width: int) -> Tensor:
    from PIL import Image

    gray = pixels.shape[3] == 1
    result = np.empty((len(pixels), height, width, pixels.shape[3]), np.uint8)
    for target, image in zip(result, (pixels[..., 0] if gray else pixels).numpy(), strict=True):
        resized = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
        target[...] = resized[..., None] if gray else resized
    return torch.from_numpy(result)


def resize_by_taps(pixels: Tensor, height: int, width: int) -> Tensor:
    """Pillow's way: one axis after the other, each a sum in fixed point, rounded to 8 bits.

    Columns come first, except where rows get fewer and columns more. Pillow 13 also turns some cases around in which
    both get fewer at different rates; then, and with an older Pillow, the last level may differ.
    """
    axes = [(2, width), (1, height)]
    if height < pixels.shape[1] and width > pixels.shape[2]:
        axes.reverse()
    for axis, size in axes:
        if pixels.shape[axis] != size:
            pixels = _along(pixels, axis, size)
    return pixels


def _along(pixels: Tensor, axis: int, size: int) -> Tensor:
    index, weights = _taps(pixels.shape[axis], size)
    shape = [1] * pixels.dim()
    shape[axis] = size
    total = torch.full((), 1 << (_PRECISION_BITS - 1), dtype=torch.int32, device=pixels.device)
    for tap in range(index.shape[1]):
        chosen = torch.from_numpy(index[:, tap]).to(pixels.device)
        weight = torch.from_numpy(weights[:, tap]).to(pixels.device).view(shape)
        total = total + pixels.index_select(axis, chosen).to(torch.int32) * weight
    return (total >> _PRECISION_BITS).clamp_(0, 255).to(torch.uint8)


@functools.lru_cache(maxsize=64)
def _taps(size_in: int, size_out: int) -> tuple[np.ndarray, np.ndarray]:
    """Source positions int64 [size_out, taps] and their fixed-point weights int32; unused taps weigh 0."""
    scale = size_in / size_out
    reach = max(scale, 1.0)
    taps = math.ceil(reach) * 2 + 1
    index, weights = np.zeros((size_out, taps), np.int64), np.zeros((size_out, taps))
    for out in range(size_out):
        center = (out + 0.5) * scale
        first = max(int(center - reach + 0.5), 0)
        last = min(int(center + reach + 0.5), size_in)
        place = np.arange(first, last)
        triangle = np.maximum(1 - np.abs((place - center + 0.5) * (1 / reach)), 0)
        index[out, : last - first] = place
        weights[out, : last - first] = triangle / sum(triangle.tolist())  # one after the other, as Pillow adds
    return index, (weights * (1 << _PRECISION_BITS) + 0.5).astype(np.int32)


def crop_matrix(start: Tensor, length: Tensor, mirror: Tensor, size_in: int, size_out: int) -> Tensor:
    """Matrices [n, size_out, size_in] that cut each sample's own stretch out of an axis and resize it.

    The same weights as in `resize_exactly`, unrounded; nothing outside the stretch has any.

    Args:
        start: [n] first position of the stretch.
        length: [n] its length.
        mirror: bool [n], whether the result runs backwards.
        size_in: length of the axis.
        size_out: length of the result.
    """
    start, length = start.float()[:, None], length.float()[:, None]
    out = torch.arange(size_out, device=start.device, dtype=torch.float32).expand(len(start), -1)
    out = torch.where(mirror[:, None], size_out - 1 - out, out)
    scale = length / size_out
    center = (start + (out + 0.5) * scale)[:, :, None]
    place = torch.arange(size_in, device=start.device, dtype=torch.float32)
    weights = (1 - (place + 0.5 - center).abs_() / scale.clamp_min(1.0)[:, :, None]).clamp_min_(0)
    inside = (place >= start) & (place < start + length)
    weights *= inside[:, None, :]
    return weights.div_(weights.sum(2, keepdim=True))
