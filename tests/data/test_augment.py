"""Transforms of the photo datasets against torchvision's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms
from torchvision.transforms import functional

from fedhpc.data._resize import crop_matrix, resize_by_taps, resize_exactly
from fedhpc.data.augment import _CHANGES, IMAGENET_MEAN, IMAGENET_STD, Parameters, PhotoTransform, draw
from fedhpc.errors import ConfigError

SIZE = 64


def smooth(seed: int, n: int, height: int = 72, width: int = 70) -> torch.Tensor:
    """uint8 [n, H, W, 3]: colourful, with edges, and not only noise."""
    coarse = torch.rand(n, 3, 9, 9, generator=torch.Generator().manual_seed(seed))
    fine = torch.rand(n, 3, height, width, generator=torch.Generator().manual_seed(seed + 1))
    blown = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")
    return ((0.85 * blown + 0.15 * fine) * 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def pictures(pixels: torch.Tensor) -> list[Image.Image]:
    return [Image.fromarray(p) for p in pixels.numpy()]


def levels(v: torch.Tensor) -> torch.Tensor:
    """Model input back to 0 ... 255."""
    mean, std = (torch.tensor(t).view(1, 3, 1, 1) for t in (IMAGENET_MEAN, IMAGENET_STD))
    return (v * std + mean) * 255


def neutral(n: int, height: int, width: int) -> Parameters:
    """Parameters that change nothing."""
    full = torch.ones(n)
    factors = torch.tensor([1.0, 1.0, 1.0, 0.0]).repeat(n, 1)
    no = torch.zeros(n, dtype=torch.bool)
    order = torch.arange(4).repeat(n, 1)
    return Parameters(0 * full, 0 * full, height * full, width * full, no, order, factors, no)


@pytest.mark.parametrize("size", [(224, 224), (96, 96), (300, 257), (227, 100), (31, 700), (1, 1)])
@pytest.mark.parametrize("channels", [1, 3])
def test_resizing_equals_pillow(size: tuple[int, int], channels: int) -> None:
    pixels = smooth(0, 2, 227, 227)[..., :channels].contiguous()
    whole = pixels.squeeze(3).numpy()
    expected = np.stack([np.asarray(Image.fromarray(p).resize(size[::-1], Image.Resampling.BILINEAR)) for p in whole])
    expected = expected.reshape(2, *size, channels)
    assert np.array_equal(resize_exactly(pixels, *size), expected)
    by_taps = resize_by_taps(pixels, *size).numpy().astype(int)
    assert np.abs(by_taps - expected).max() <= 1  # which axis comes first depends on Pillow's version
    if not (size[0] < 227 < size[1]):
        assert np.array_equal(by_taps, expected)


@pytest.mark.parametrize("shape", [(227, 227), (224, 224), (120, 300)])
def test_plain_equals_torchvision(shape: tuple[int, int]) -> None:
    pixels = smooth(1, 3, *shape)
    plain = transforms.Compose(
        [transforms.Resize((224, 224)), transforms.ToTensor(), transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    )
    found = PhotoTransform()(pixels)
    assert torch.equal(found, torch.stack([plain(p) for p in pictures(pixels)]))
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_training_without_augmentation_is_plain() -> None:
    pixels = smooth(1, 3)
    assert torch.equal(PhotoTransform(SIZE, augment=False)(pixels, None, train=True), PhotoTransform(SIZE)(pixels))


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("factor", [0.7, 0.95, 1.3])
def test_each_colour_change_equals_torchvisions(kind: int, factor: float) -> None:
    """A hue at the edge of one of Pillow's 256 steps may fall into the next one, which is six levels away."""
    pixels = smooth(2, 4)
    change = (
        functional.adjust_brightness,
        functional.adjust_contrast,
        functional.adjust_saturation,
        functional.adjust_hue,
    )[kind]
    amount = factor - 1 if kind == 3 else factor
    expected = np.stack([np.asarray(change(p, amount)) for p in pictures(pixels)]).astype(int)
    v = pixels.permute(0, 3, 1, 2).float().contiguous()
    _CHANGES[kind](v, torch.full((4, 1, 1, 1), amount))
    difference = np.abs(v.permute(0, 2, 3, 1).numpy() - expected)
    assert (difference > 0).mean() < (0.01 if kind == 3 else 0.001)
    assert difference.max() <= (7 if kind == 3 else 1)


def test_hue_of_gray_black_and_white() -> None:
    v = torch.tensor([0.0, 128.0, 255.0]).view(3, 1, 1, 1).repeat(1, 3, 2, 2)
    before = v.clone()
    _CHANGES[3](v, torch.full((3, 1, 1, 1), 0.3))
    assert torch.equal(v, before)


def test_a_whole_chain_equals_torchvisions() -> None:
    """Crop, mirror, four changes in a given order, gray: the same parameters give the same picture."""
    pixels = smooth(3, 12)
    parameters = replace(draw(12, 72, 70, torch.Generator().manual_seed(5)), gray=torch.arange(12) % 3 == 0)
    transform = PhotoTransform(SIZE)
    found = levels(transform.apply(pixels, parameters))
    changes = (
        functional.adjust_brightness,
        functional.adjust_contrast,
        functional.adjust_saturation,
        functional.adjust_hue,
    )
    for i, picture in enumerate(pictures(pixels)):
        box = [int(getattr(parameters, name)[i]) for name in ("top", "left", "height", "width")]
        changed = functional.resized_crop(picture, *box, [SIZE, SIZE])
        if parameters.flip[i]:
            changed = functional.hflip(changed)
        for kind in parameters.order[i].tolist():
            changed = changes[kind](changed, float(parameters.factors[i, kind]))
        if parameters.gray[i]:
            changed = functional.to_grayscale(changed, 3)
        difference = found[i].permute(1, 2, 0).numpy() - np.asarray(changed).astype(int)
        assert np.abs(difference).max() < 15
        assert np.abs(difference).mean() < 0.05
        if parameters.gray[i]:
            assert torch.allclose(found[i, 0], found[i, 2], atol=1e-3)


def test_products_of_matrices_equal_pillows_crops() -> None:
    """The way of accelerators: within a level of Pillow, which rounds twice."""
    pixels = smooth(4, 6)
    p = draw(6, 72, 70, torch.Generator().manual_seed(1))
    rows = crop_matrix(p.top, p.height, torch.zeros_like(p.flip), 72, SIZE)
    columns = crop_matrix(p.left, p.width, p.flip, 70, SIZE)
    torch.testing.assert_close(rows.sum(2), torch.ones(6, SIZE))
    found = (rows[:, None] @ pixels.permute(0, 3, 1, 2).float() @ columns.transpose(1, 2)[:, None]).round()
    assert (found - PhotoTransform(SIZE)._crop(pixels, p)).abs().max() <= 1


@pytest.mark.parametrize("shape", [(72, 72), (40, 90), (90, 40), (10, 90)])
def test_crops_are_distributed_as_torchvisions(shape: tuple[int, int]) -> None:
    height, width = shape
    n = 4000
    p = draw(n, height, width, torch.Generator().manual_seed(0))
    ours = torch.stack([p.top, p.left, p.height, p.width], 1)
    picture = torch.zeros(3, height, width)
    torch.manual_seed(0)
    theirs = torch.tensor(
        [transforms.RandomResizedCrop.get_params(picture, [0.7, 1.0], [3 / 4, 4 / 3]) for _ in range(n)]
    ).float()
    assert torch.equal(ours, ours.round())
    assert (ours[:, 0] + ours[:, 2] <= height).all()
    assert (ours[:, 1] + ours[:, 3] <= width).all()
    assert ours.min() >= 0
    error = 5 * theirs.std(0) * (2 / n) ** 0.5 + 1e-6
    assert ((ours.mean(0) - theirs.mean(0)).abs() <= error).all()
    torch.testing.assert_close(ours.std(0), theirs.std(0), rtol=0.08, atol=0.05)


def test_other_parameters_are_distributed_as_stated() -> None:
    n = 6000
    p = draw(n, 50, 50, torch.Generator().manual_seed(0))
    for kind in range(4):
        low, high = (-0.3, 0.3) if kind == 3 else (0.7, 1.3)
        values = p.factors[:, kind]
        assert low <= values.min() < low + 0.01
        assert high - 0.01 < values.max() <= high
        assert values.mean() == pytest.approx((low + high) / 2, abs=0.01)
    assert p.flip.float().mean() == pytest.approx(0.5, abs=0.03)
    assert p.gray.float().mean() == pytest.approx(0.1, abs=0.02)
    codes = (p.order * torch.tensor([64, 16, 4, 1])).sum(1)
    counts = torch.unique(codes, return_counts=True)[1]
    assert len(counts) == 24
    assert counts.min() > 250 * 0.7


def test_moments_equal_torchvisions() -> None:
    pixels = smooth(6, 40)
    random = transforms.Compose(
        [
            transforms.RandomResizedCrop(SIZE, scale=(0.7, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(0.3, 0.3, 0.3, 0.3),
            transforms.RandomGrayscale(),
            transforms.ToTensor(),
            transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD),
        ]
    )
    torch.manual_seed(0)
    theirs = torch.cat([torch.stack([random(p) for p in pictures(pixels)]) for _ in range(8)])
    generator = torch.Generator().manual_seed(1)
    ours = torch.cat([PhotoTransform(SIZE)(pixels, generator, train=True) for _ in range(8)])

    def moments(v: torch.Tensor) -> torch.Tensor:
        """Per channel: mean, spread within and between images, correlation of neighbours, and of channels."""
        centred = v - v.mean((2, 3), keepdim=True)
        steps = (v[..., 1:] - v[..., :-1]).abs().mean((0, 2, 3))
        crossed = (centred * centred.roll(1, 1)).mean((0, 2, 3))
        return torch.stack([v.mean((0, 2, 3)), centred.std((0, 2, 3)), v.mean((2, 3)).std(0), steps, crossed])

    torch.testing.assert_close(moments(ours), moments(theirs), rtol=0.05, atol=0.03)


def test_draws_follow_the_generator() -> None:
    pixels, transform = smooth(7, 5), PhotoTransform(SIZE)
    first, again, other = (transform(pixels, torch.Generator().manual_seed(seed), train=True) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.is_contiguous(memory_format=torch.channels_last)
    assert first.shape == (5, 3, SIZE, SIZE)


def test_batches_do_not_mix_samples() -> None:
    """A sample's result depends on its own parameters only, however the batch is cut."""
    pixels, transform = smooth(8, 6), PhotoTransform(SIZE)
    p = draw(6, 72, 70, torch.Generator().manual_seed(3))
    whole = transform.apply(pixels, p)
    alone = torch.cat([transform.apply(pixels[i : i + 1], p.at(slice(i, i + 1))) for i in range(6)])
    assert torch.equal(whole, alone)


def test_neutral_parameters_give_the_plain_picture() -> None:
    pixels, transform = smooth(9, 2), PhotoTransform(SIZE)
    difference = levels(transform.apply(pixels, neutral(2, 72, 70))) - levels(transform(pixels))
    assert difference.abs().max() < 8  # hue passes through 8 bits, also unchanged
    assert difference.abs().mean() < 1


def test_stored_pixels_stay_and_model_input_passes() -> None:
    pixels, transform = smooth(9, 2, SIZE, SIZE), PhotoTransform(SIZE, dtype=torch.float64)
    before = pixels.clone()
    assert transform(pixels, torch.Generator(), train=True).dtype == torch.float64
    assert torch.equal(pixels, before)
    ready = torch.randn(2, 3, 5, 5)
    assert transform(ready, None, train=True) is ready


def test_wrong_use_is_told() -> None:
    with pytest.raises(ConfigError, match="3 channels, these images have 1"):
        PhotoTransform()(torch.zeros(1, 8, 8, 1, dtype=torch.uint8))
    with pytest.raises(ValueError, match="generator"):
        PhotoTransform()(smooth(0, 1), None, train=True)
    with pytest.raises(ConfigError, match="size"):
        PhotoTransform(size=0)
