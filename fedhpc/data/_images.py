"""Files and arrays to uint8 pixels of a wanted size and channel count. PIL is imported inside the functions."""

from __future__ import annotations

import functools
import io
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedhpc.data.sources.base import BadSampleError

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
"""What is decoded, told by content and never by name; other decoders of PIL are not reached."""
EXTENSIONS = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"))
"""Names, in any case, that count as images when a folder is listed."""
MAX_PIXELS = 1 << 26
"""Larger images are refused by their header, before anything of their size is allocated."""
CROPPED_FROM = 256 / 224
"""Covered by an image before its centre is cut out, as a share of the wanted size."""

_ORIENTATION_TAG = 0x0112


def decode(content: bytes, channels: int) -> np.ndarray:
    """Decode an image file.

    The first frame of an animation is taken, EXIF orientation applied, transparency dropped and 16-bit gray shifted
    to 8 bits.

    Args:
        content: the file.
        channels: 1 (gray) or 3 (RGB).

    Returns:
        uint8 [H, W, channels].

    Raises:
        BadSampleError: not an image, damaged, cut, or too large.
    """
    from PIL import Image, UnidentifiedImageError

    refuse_known(content)
    try:
        with Image.open(io.BytesIO(content), formats=_decoders()) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise BadSampleError(f"{width}x{height} pixels, the limit is {MAX_PIXELS:,}")
            image.load()
            upright = _upright(image)
            return _pixels(_to_mode(upright, channels))
    except BadSampleError:
        raise
    except UnidentifiedImageError:
        raise BadSampleError(f"not an image of a known format ({', '.join(FORMATS)})") from None
    except Image.DecompressionBombError as error:
        raise BadSampleError(f"too many pixels: {error}") from None
    except MemoryError:
        raise BadSampleError("does not fit in memory") from None
    except (
        Exception
    ) as error:  # PIL raises nearly anything on damaged input: SyntaxError, struct.error, IndexError, ...
        raise BadSampleError(f"damaged image ({error or type(error).__name__})") from None


@functools.cache
def _decoders() -> tuple[str, ...]:
    from PIL import Image

    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)  # WEBP may be missing in a small build of PIL


def refuse_known(content: bytes) -> None:
    """Raise BadSampleError for files that are not what their name says, with the likely story."""
    if not content:
        raise BadSampleError("empty file")
    if content.startswith(b"version https://git-lfs"):
        raise BadSampleError("a Git LFS pointer, not the file itself: run `git lfs pull`")
    start = content[:512].lstrip().lower()
    if start.startswith((b"<!doctype", b"<html")):
        raise BadSampleError("an HTML page, probably a failed download")


def fit(
    image: np.ndarray, size: tuple[int, int] | None, channels: int | None, how: Literal["squeeze", "crop"] = "squeeze"
) -> np.ndarray:
    """Bring decoded pixels to a wanted shape.

    Args:
        image: uint8 [H, W, C].
        size: (height, width), by bilinear interpolation with antialiasing; None keeps the size.
        channels: 1 or 3; None keeps them.
        how: `squeeze` changes the proportions; `crop` keeps them: the image is made to cover 256/224 of the size, and
            its centre is taken (so 224 gives torchvision's `Resize(256)` and `CenterCrop(224)`).

    Returns:
        uint8 [height, width, channels].

    Raises:
        BadSampleError: neither gray nor RGB.
    """
    same = size is None or (size == image.shape[:2] and how == "squeeze")
    if same and channels in (None, image.shape[2]):
        return image
    if image.shape[2] not in (1, 3):
        raise BadSampleError(f"{image.shape[2]} channels; only gray and RGB images can be converted")
    from PIL import Image

    picture = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    if channels not in (None, image.shape[2]):
        picture = _to_mode(picture, channels or 1)
    if size is not None and how == "crop":
        picture = _centre(picture, *size)
    elif size is not None:
        picture = picture.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return _pixels(picture)


def _centre(picture: Image.Image, height: int, width: int) -> Image.Image:
    """Resize in proportion until the image just covers 256/224 of the size, and cut its centre out."""
    from PIL import Image

    high, wide = (round(side * CROPPED_FROM) for side in (height, width))
    if picture.width * high >= picture.height * wide:
        wide = high * picture.width // picture.height
    else:
        high = wide * picture.height // picture.width
    top, left = round((high - height) / 2), round((wide - width) / 2)
    resized = picture.resize((wide, high), Image.Resampling.BILINEAR)
    return resized.crop((left, top, left + width, top + height))


def _upright(image: Image.Image) -> Image.Image:
    from PIL import ImageOps

    try:
        turned = image.getexif().get(_ORIENTATION_TAG, 1) != 1
        return (ImageOps.exif_transpose(image) or image) if turned else image
    except Exception:  # unreadable EXIF says nothing about the pixels, which are already loaded
        return image


def _to_mode(image: Image.Image, channels: int) -> Image.Image:
    from PIL import Image

    if image.mode.startswith("I"):  # 16-bit gray; PIL's own convert clips it at 255
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 0xFFFF:
            raise BadSampleError("gray values beyond 16 bits")
        image = Image.fromarray((values.astype(np.int64) >> 8).astype(np.uint8))
    elif image.mode == "F":
        raise BadSampleError("floating-point pixels; store 8 or 16 bits")
    elif image.mode in ("P", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("L" if channels == 1 else "RGB")


def _pixels(image: Image.Image) -> np.ndarray:
    values = np.asarray(image, dtype=np.uint8)
    return values[..., None] if values.ndim == 2 else values
