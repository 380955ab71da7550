"""A module's weights, gradients and buffers are views of flat tensors, and stay so."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from torch import nn

from fedhpc.tensors.vector import ParameterVector, sha256_float32


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2 * 2 * 2, 3))
    return layers.to(dtype)


def images(n: int = 4, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.rand(n, 1, 4, 4, generator=torch.Generator().manual_seed(1), dtype=dtype)


def test_layout_follows_the_named_parameters_row_major() -> None:
    module = network()
    expected = torch.cat([p.detach().reshape(-1) for p in module.parameters()]).clone()
    vector = ParameterVector(module)
    assert [s.name for s in vector.layout] == [n for n, _ in module.named_parameters()]
    assert torch.equal(vector.weights, expected)
    assert len(vector) == expected.numel() == vector.layout[-1].stop
    assert all(a.stop == b.start for a, b in zip(vector.layout, vector.layout[1:], strict=False))


def test_a_flat_write_moves_the_model_and_a_step_moves_the_vector() -> None:
    module = network()
    vector = ParameterVector(module)
    vector.weights.fill_(0.5)
    assert all(torch.equal(p, torch.full_like(p, 0.5)) for p in module.parameters())
    module(images()).sum().backward()
    assert torch.equal(vector.grads, torch.cat([p.grad.reshape(-1) for p in module.parameters()]))
    assert vector.grads.abs().sum() > 0
    torch.optim.SGD(module.parameters(), 0.1).step()
    assert torch.equal(vector.weights, torch.cat([p.detach().reshape(-1) for p in module.parameters()]))


def test_gradients_accumulate_in_place_until_cleared() -> None:
    module = network().eval()
    vector = ParameterVector(module)
    module(images()).sum().backward()
    once = vector.grads.clone()
    module(images()).sum().backward()
    torch.testing.assert_close(vector.grads, 2 * once)
    vector.zero_grads()
    assert not vector.grads.any()
    assert all(p.grad is not None and p.grad.data_ptr() != 0 for p in module.parameters())
    module(images()).sum().backward()
    torch.testing.assert_close(vector.grads, once)


def test_parameters_without_a_gradient_are_told() -> None:
    module = network()
    vector = ParameterVector(module)
    vector.zero_grads()
    module[:3](images()).sum().backward()  # the last layer is not used
    assert [vector.layout[i].name for i in vector.untouched()] == ["3.weight", "3.bias"]
    vector.zero_grads()
    assert len(vector.untouched()) == 6
    vector.write_grads([None, torch.ones(2), None, None, None, torch.zeros(3)])
    assert [vector.layout[i].name for i in vector.untouched()] == ["0.weight", "1.weight", "1.bias", "3.weight"]
    assert vector.grads.sum() == 2


def test_hidden_gradients_keep_an_optimizer_away_and_come_back_as_views() -> None:
    module = network()
    vector = ParameterVector(module)
    module(images()).sum().backward()
    before = vector.weights.clone()
    vector.hide_grads([4, 5])
    torch.optim.SGD(module.parameters(), 0.1, weight_decay=0.5).step()
    vector.show_grads([4, 5])
    moved = vector.weights != before
    start = vector.layout[4].start
    assert moved[:start].all()
    assert not moved[start:].any()
    module[3].weight.grad.fill_(7)
    assert torch.equal(vector.grads[start : vector.layout[4].stop], torch.full((24,), 7.0))


def test_frozen_parameters_are_no_part_of_it() -> None:
    module = network()
    module[3].weight.requires_grad_(False)
    kept = module[3].weight.clone()
    vector = ParameterVector(module)
    assert "3.weight" not in [s.name for s in vector.layout]
    vector.weights.fill_(9)
    assert torch.equal(module[3].weight, kept)


def test_float_buffers_are_views_and_counters_keep_their_type() -> None:
    module = network()
    vector = ParameterVector(module)
    assert [s.name for s in vector.buffer_layout] == ["1.running_mean", "1.running_var"]
    module.train()
    module(images())
    assert torch.equal(vector.buffers, torch.cat([module[1].running_mean, module[1].running_var]))
    assert vector.num_counters == 1
    assert vector.counters().tolist() == [1.0]
    vector.set_counters(torch.tensor([12.0], dtype=torch.float64))
    assert module[1].num_batches_tracked.dtype == torch.int64
    assert module[1].num_batches_tracked.item() == 12
    vector.buffers.copy_(torch.arange(4.0))
    assert module[1].running_var.tolist() == [2.0, 3.0]
    assert set(module.state_dict()) == set(network().state_dict())


def test_counters_are_exact_beyond_float32() -> None:
    module = network()
    module[1].num_batches_tracked.fill_(2**24 + 1)
    vector = ParameterVector(module)
    vector.set_counters(vector.counters())
    assert module[1].num_batches_tracked.item() == 2**24 + 1


def test_state_dict_and_loading_go_through_the_views() -> None:
    module, other = network(), network()
    vector = ParameterVector(module)
    with torch.no_grad():
        for p in other.parameters():
            p.fill_(0.25)
    module.load_state_dict(other.state_dict())
    assert torch.equal(vector.weights, torch.full_like(vector.weights, 0.25))


def test_a_tied_parameter_is_held_once() -> None:
    module = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    module[1].weight = module[0].weight
    vector = ParameterVector(module)
    assert len(vector) == 9
    module(torch.ones(1, 3)).sum().backward()
    assert vector.untouched() == []


def test_models_it_cannot_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="no trainable parameter"):
        ParameterVector(network().requires_grad_(False))
    mixed = network()
    mixed[3].double()
    with pytest.raises(ValueError, match="float32 or float64"):
        ParameterVector(mixed)
    with pytest.raises(ValueError, match="float16"):
        ParameterVector(network(torch.float16))


def test_a_model_without_buffers_has_empty_ones() -> None:
    vector = ParameterVector(nn.Linear(2, 2))
    assert vector.buffers.numel() == vector.num_counters == vector.counters().numel() == 0


def test_sum_of_the_weights_is_that_of_little_endian_float32() -> None:
    values = torch.tensor([1.0, -2.5, 1e-30], dtype=torch.float64)
    expected = hashlib.sha256(np.array([1.0, -2.5, 1e-30], dtype="<f4").tobytes()).hexdigest()
    assert sha256_float32(values) == expected
    assert sha256_float32(values.float()) == expected
    assert sha256_float32(-values) != expected
