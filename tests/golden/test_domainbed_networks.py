"""Networks by the original's numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedhpc.models import mnist_cnn, resnet18
from fedhpc.models.base import ModelOptions, Network
from fedhpc.models.weights import load_weights
from tests.golden.domainbed_cases import Case, parametrize

PRECISIONS = [("f64", torch.float64, 1e-9), ("f32", torch.float32, 1e-4)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc)


@pytest.fixture
def arrays(mnist_cnn_case: Case) -> dict[str, np.ndarray]:
    return mnist_cnn_case.arrays()


@pytest.fixture
def facts(mnist_cnn_case: Case) -> dict:
    return mnist_cnn_case.facts


def with_golden_weights(arrays: dict[str, np.ndarray], facts: dict, dtype: torch.dtype) -> Network:
    shape, num_classes = arrays["x_uint8"].shape[1:], arrays["q/classifier.bias"].size
    model = mnist_cnn.MODEL(shape, num_classes, ModelOptions()).to(dtype)
    state = {
        name.removeprefix("featurizer."): torch.from_numpy(arrays[f"q/{name}"] * np.float64(scale))
        for name, scale in facts["scale"].items()
    }
    model.load_state_dict(state)
    return model


@pytest.mark.parametrize(("name", "dtype", "tolerance"), PRECISIONS)
def test_mnist_cnn_gives_the_original_features_and_logits(mnist_cnn_case, arrays, facts, name, dtype, tolerance):
    model = with_golden_weights(arrays, facts, dtype)
    x = torch.from_numpy(arrays["x_uint8"]).to(dtype) / 255
    for memory in (torch.contiguous_format, torch.channels_last):
        model.to(memory_format=memory)
        with torch.no_grad():
            features, logits = model.features(x.to(memory_format=memory)), model(x.to(memory_format=memory))
        np.testing.assert_allclose(features, arrays[f"{name}/features"], rtol=0, atol=tolerance)
        np.testing.assert_allclose(logits, arrays[f"{name}/logits"], rtol=0, atol=tolerance)


def test_mnist_cnn_has_the_original_stages(mnist_cnn_case, arrays, facts):
    model, seen = with_golden_weights(arrays, facts, torch.float64), []
    for norm in (model.bn0, model.bn1, model.bn2, model.bn3):
        norm.register_forward_hook(lambda _module, _inputs, out: seen.append(out.detach()))
    model(torch.from_numpy(arrays["x_uint8"]).double() / 255)
    assert [list(out.shape) for out in seen] == facts["f64_stage_shapes"]
    np.testing.assert_allclose([out[0].sum() for out in seen], facts["f64_stage_sum_image0"], atol=1e-8)
    np.testing.assert_allclose([out.abs().mean() for out in seen], facts["f64_stage_mean_abs"], atol=1e-11)


def test_mnist_cnn_trains_as_the_original(mnist_cnn_case, arrays, facts):
    model = with_golden_weights(arrays, facts, torch.float64)
    probe = torch.from_numpy(arrays["x_uint8"]).double() / 255
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for t, (images, labels) in enumerate(zip(arrays["train/x_uint8"], arrays["train/y"], strict=True)):
        x, y = torch.from_numpy(images).flatten(0, 1).double() / 255, torch.from_numpy(labels).flatten()
        loss = functional.cross_entropy(model(x), y)
        assert loss.item() == pytest.approx(facts["f64_train_losses"][t], abs=1e-9)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            np.testing.assert_allclose(model(probe), arrays["f64/train_probe_logits"][t], rtol=0, atol=1e-8)


def test_mnist_cnn_parameter_counts(mnist_cnn_case, arrays, facts):
    given = (arrays["x_uint8"].shape[1:], facts["parameter_count"]["featurizer"])
    for shape, expected in (((1, 28, 28), 370_560), given):
        model = mnist_cnn.MODEL(shape, 2, ModelOptions())
        total = sum(p.numel() for p in model.parameters())
        assert total - sum(p.numel() for p in model.classifier.parameters()) == expected


@pytest.mark.parametrize("freeze_bn", [True, False])
def test_resnet18_batch_norm_behaves_as_observed(resnet_case: Case, freeze_bn: bool):
    expected = resnet_case.facts.get(f"freeze_bn={freeze_bn}")
    if expected is None:
        pytest.skip("the case says nothing about it")
    torch.manual_seed(0)
    model = resnet18.MODEL((3, 32, 32), 4, ModelOptions(freeze_bn=freeze_bn))
    model.eval()
    model.train()
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    mean, weight = norms[0].running_mean.clone(), norms[0].weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    functional.cross_entropy(model(torch.randn(8, 3, 32, 32)), torch.arange(8) % 4).backward()
    optimizer.step()
    assert {
        "n_bn": len(norms),
        "any_bn_in_training_mode": any(m.training for m in norms),
        "running_mean_changed": not torch.equal(mean, norms[0].running_mean),
        "affine_weight_changed": not torch.equal(weight, norms[0].weight),
        "bn_weight_requires_grad": norms[0].weight.requires_grad,
        "n_outputs": model.num_features,
    } == expected


def test_resnet18_with_more_channels_repeats_loaded_kernels(resnet_case: Case, tmp_path: Path):
    source = resnet18.MODEL((3, 32, 32), 4, ModelOptions())
    torch.save(source.state_dict(), tmp_path / "three.pt")
    cases = {int(k.removeprefix("channels")): v for k, v in resnet_case.facts.items() if k.startswith("channels")}
    for channels, expected in cases.items():
        model = resnet18.MODEL((channels, 32, 32), 4, ModelOptions())
        assert f"repeated from 3 to {channels} channels" in load_weights(model, str(tmp_path / "three.pt"))
        kernel = model.conv1.weight
        copied = all(torch.equal(kernel[:, i], source.conv1.weight[:, i % 3]) for i in range(channels))
        bias = model.conv1.bias is not None
        assert {"shape": list(kernel.shape), "copied_mod3": copied, "bias": bias} == expected
