"""What every model keeps, whichever files lie in fedhpc/models: a new one is tested as it is."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedhpc import registry
from fedhpc.errors import ConfigError
from fedhpc.models.base import ModelOptions, Network

SHAPE, NUM_CLASSES = (3, 32, 32), 5


def make(name: str, options: ModelOptions | None = None, shape: tuple[int, int, int] = SHAPE, seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return registry.load("fedhpc.models", name).MODEL(shape, NUM_CLASSES, options or ModelOptions())


def images(n: int = 3, channels: int = 3, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.rand(n, channels, 32, 32, generator=torch.Generator().manual_seed(1), dtype=dtype)


@pytest.fixture(params=registry.names("fedhpc.models"))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_shapes_and_contract(name: str):
    model = make(name).eval()
    features = model.features(images())
    assert features.shape == (3, model.num_features)
    assert isinstance(model.classifier, nn.Linear)
    assert model.classifier.weight.shape == (NUM_CLASSES, model.num_features)
    assert torch.equal(model(images()), model.classifier(features))
    assert make(name).training


def test_same_seed_same_bits(name: str):
    first, again, other = (make(name, seed=s).state_dict() for s in (3, 3, 4))
    assert list(first) == list(again)
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert any(not torch.equal(first[k], other[k]) for k in first)


def test_every_parameter_learns(name: str):
    model = make(name)
    functional.cross_entropy(model(images(8)), torch.arange(8) % NUM_CLASSES).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key


def test_float64_and_channels_last_give_the_same_logits(name: str):
    # Without rounding in the way, any difference would be a layer that reads memory in the wrong order.
    model = make(name).double().eval()
    plain = model(images(dtype=torch.float64))
    assert plain.dtype == torch.float64
    last = model.to(memory_format=torch.channels_last)(
        images(dtype=torch.float64).to(memory_format=torch.channels_last)
    )
    torch.testing.assert_close(plain, last, rtol=0, atol=1e-12)


@pytest.mark.parametrize("channels", [1, 4])
def test_other_channel_counts_work(name: str, channels: int):
    assert make(name, shape=(channels, 32, 32)).eval()(images(2, channels)).shape == (2, NUM_CLASSES)


def test_a_last_batch_of_one_image_trains(name: str):
    model = make(name)
    loss = functional.cross_entropy(model(images(1)), torch.tensor([1]))
    loss.backward()
    assert torch.isfinite(loss)


def test_dropout_acts_in_training_only(name: str):
    model = make(name, ModelOptions(dropout=0.9))
    plain = make(name)
    assert torch.equal(model.eval()(images()), plain.eval()(images()))
    model.train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    torch.manual_seed(0)
    assert not torch.equal(model(images()), model(images()))
    with pytest.raises(ConfigError, match=r"model\.dropout"):
        make(name, ModelOptions(dropout=1.0))


def test_frozen_batch_norm_stays_frozen_or_is_refused(name: str):
    has_norm = any(isinstance(m, nn.BatchNorm2d) for m in make(name).modules())
    frozen = replace(ModelOptions(), freeze_bn=True)
    if not has_norm:
        with pytest.raises(ConfigError, match=r"model\.freeze_bn"):
            make(name, frozen)
        return
    model = make(name, frozen)
    before = {k: b.clone() for k, b in model.named_buffers()}
    model.eval()
    model.train()
    model(images(8)).sum().backward()
    assert all(torch.equal(before[k], b) for k, b in model.named_buffers())
    assert model.training


def test_models_are_cheap_to_list_and_to_import():
    code = (
        "import sys; from fedhpc import registry; names = registry.names('fedhpc.models')\n"
        "assert names and 'torch' not in sys.modules\n"
        "for name in names: registry.load('fedhpc.models', name)\n"
        "assert 'torchvision' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
