"""Parameter counts, input sizes and options of single models."""

from __future__ import annotations

import pytest
import torch

from fedhpc import registry
from fedhpc.errors import ConfigError
from fedhpc.models.base import ModelOptions, Network


def build(name: str, shape: tuple[int, int, int], num_classes: int, **options) -> Network:
    return registry.load("fedhpc.models", name).MODEL(shape, num_classes, ModelOptions(**options))


@pytest.mark.parametrize(
    ("name", "shape", "num_classes", "parameters"),
    [
        ("hem_cnn", (3, 32, 32), 10, 797_962),
        ("mlp", (1, 8, 8), 10, 64 * 64 + 64 + 64 * 10 + 10),
        ("resnet18", (3, 32, 32), 1000, 11_689_512),
        ("resnet50", (3, 32, 32), 1000, 25_557_032),
        ("squeezenet1_1", (3, 32, 32), 1000, 1_235_496),
        ("wide_resnet16_2", (3, 32, 32), 10, 691_674 + 1_136),  # the paper's, and biases of the convolutions
    ],
)
def test_parameter_counts(name: str, shape: tuple[int, int, int], num_classes: int, parameters: int):
    assert sum(p.numel() for p in build(name, shape, num_classes).parameters()) == parameters


@pytest.mark.parametrize(("name", "smallest"), [("hem_cnn", 16), ("squeezenet1_1", 17)])
def test_smallest_images_work_and_smaller_ones_are_refused(name: str, smallest: int):
    assert build(name, (1, smallest, smallest), 3).eval()(torch.rand(2, 1, smallest, smallest)).shape == (2, 3)
    with pytest.raises(ConfigError, match=f"at least {smallest}x{smallest} pixels, the dataset has {smallest - 1}x40"):
        build(name, (1, smallest - 1, 40), 3)


def test_hem_cnn_takes_other_sizes():
    assert build("hem_cnn", (1, 28, 40), 4)(torch.rand(2, 1, 28, 40)).shape == (2, 4)


def test_mlp_depth():
    model = build("mlp", (2, 3, 3), 4, hidden=(7, 5))
    assert [tuple(p.shape) for p in model.parameters()] == [(7, 18), (7,), (5, 7), (5,), (4, 5), (4,)]
    assert build("mlp", (2, 3, 3), 4, hidden=()).num_features == 18
    with pytest.raises(ConfigError, match=r"model\.hidden"):
        build("mlp", (2, 3, 3), 4, hidden=(7, 0))


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [("mlp", "freeze_bn", True), ("hem_cnn", "hidden", (3,)), ("mnist_cnn", "freeze_bn", True)],
)
def test_options_a_model_lacks_are_named(name: str, option: str, value: object):
    with pytest.raises(ConfigError, match=rf"model\.{option}: {name} has no such option, leave it out or at "):
        build(name, (3, 32, 32), 4, **{option: value})


def test_resnet_trains_on_a_batch_of_one_small_image():
    model = build("resnet18", (3, 16, 16), 2)
    mean = model.layer4[1].bn2.running_mean.clone()
    loss = model(torch.rand(1, 3, 16, 16)).sum()
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.equal(mean, model.layer4[1].bn2.running_mean)  # one value has no variance to learn from


def test_resnet_equals_torchvision():
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    reference = torchvision.models.resnet18(weights=None, num_classes=5)
    torch.manual_seed(0)
    model = build("resnet18", (3, 48, 48), 5)
    for r, m in ((reference.train(), model.train()), (reference.eval(), model.eval())):
        x = torch.rand(3, 3, 48, 48)
        torch.testing.assert_close(m(x), r(x), rtol=1e-5, atol=1e-6)
