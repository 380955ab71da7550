"""Pixels to model input, and augmentation."""

from __future__ import annotations

import pytest
import torch

from fedhpc.data.samples import Samples
from fedhpc.data.transforms import Transform
from fedhpc.errors import ConfigError


@pytest.fixture
def pixels() -> torch.Tensor:
    return torch.randint(1, 256, (6, 5, 7, 3), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_values_and_memory_format(pixels: torch.Tensor):
    transform = Transform(mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.5), dtype=torch.float64)
    out = transform(pixels)
    assert out.shape == (6, 3, 5, 7)
    assert out.is_contiguous(memory_format=torch.channels_last)
    for channel, (m, s) in enumerate(zip(transform.mean, transform.std, strict=True)):
        expected = (pixels[..., channel].double() / 255 - m) / s
        torch.testing.assert_close(out[:, channel], expected, rtol=0, atol=1e-14)


def test_pixel_max_and_dtype(pixels: torch.Tensor):
    out = Transform(pixel_max=16)(torch.full((2, 8, 8, 1), 16, dtype=torch.uint8))
    assert out.dtype == torch.float32
    assert (out == 1).all()


def test_stored_pixels_stay_as_they_are(pixels: torch.Tensor):
    before = pixels.clone()
    Transform(flip=True, crop_pad=2, mean=(0.5,) * 3, std=(0.5,) * 3)(pixels, draws(), train=True)
    assert torch.equal(pixels, before)


def test_floating_point_input_passes_through():
    x = torch.randn(4, 9, dtype=torch.float64)
    assert Transform(flip=True, mean=(0.0,), std=(1.0,))(x, None, train=True) is x


def test_flip_mirrors_about_half_of_the_images():
    x = torch.arange(12, dtype=torch.uint8).view(1, 2, 6, 1).repeat(400, 1, 1, 1)
    out = Transform(pixel_max=1, flip=True)(x, draws(), train=True)
    plain = Transform(pixel_max=1)(x)
    mirrored = torch.tensor([torch.equal(a, b.flip(-1)) for a, b in zip(out, plain, strict=True)])
    kept = torch.tensor([torch.equal(a, b) for a, b in zip(out, plain, strict=True)])
    assert (mirrored ^ kept).all()
    assert 150 < mirrored.sum() < 250


def test_crop_shifts_within_a_border_of_zeros():
    x = torch.zeros(500, 7, 7, 1, dtype=torch.uint8)
    x[:, 3, 3] = 1
    out = Transform(pixel_max=1, crop_pad=2)(x, draws(), train=True)
    assert (out.sum(dim=(1, 2, 3)) == 1).all()
    rows, columns = out[:, 0].nonzero()[:, 1], out[:, 0].nonzero()[:, 2]
    assert set(rows.tolist()) == set(columns.tolist()) == {1, 2, 3, 4, 5}
    ones = Transform(pixel_max=1, crop_pad=2)(torch.ones_like(x), draws(), train=True)
    assert ones.min() == 0  # what comes from outside the image is black


def test_augmentation_follows_its_generator_and_training_only(pixels: torch.Tensor):
    transform = Transform(flip=True, crop_pad=2)
    first, again, other = (transform(pixels, draws(s), train=True) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(transform(pixels, draws(1), train=False), Transform()(pixels))
    with pytest.raises(ValueError, match="generator"):
        transform(pixels, None, train=True)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"mean": (0.5,)}, "mean and std together"),
        ({"mean": (0.5,), "std": (0.0,)}, r"data\.transform\.std"),
        ({"crop_pad": -1}, r"data\.transform\.crop_pad"),
        ({"pixel_max": 0}, "pixel_max"),
    ],
)
def test_bad_numbers_are_named(options: dict, key: str):
    with pytest.raises(ConfigError, match=key):
        Transform(**options)


def test_channels_must_fit(pixels: torch.Tensor):
    with pytest.raises(ConfigError, match=r"mean has 1 numbers, the images have 3 channels"):
        Transform(mean=(0.5,), std=(0.5,))(pixels)


def test_samples_are_taken_by_position(pixels: torch.Tensor):
    samples = Samples(pixels, torch.arange(6))
    taken = samples.at(torch.tensor([4, 0, 4]))
    assert len(taken) == 3
    assert taken.y.tolist() == [4, 0, 4]
    assert torch.equal(taken.x[0], pixels[4])
