"""MAML's meta gradient, its second derivatives, and what must stay where it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedhpc.data.samples import Batch
from fedhpc.objectives.maml import Maml
from fedhpc.tensors.vector import ParameterVector
from tests.federated.federation import CLASSES, FEATURES, NormNet, mlp


def batches(n: int = 6) -> list[Batch]:
    noise = torch.Generator().manual_seed(0)
    found = []
    for _ in range(2):
        x = torch.randn(n, FEATURES, 1, 1, generator=noise, dtype=torch.float64)
        found.append(Batch(x, torch.randint(CLASSES, (n,), generator=noise)))
    return found


def meta_gradient(model: nn.Module, minibatches: list[Batch] | None = None, **options: Any) -> Tensor:
    vector = ParameterVector(model)
    vector.zero_grads()
    Maml(model, vector, **options).backward(minibatches or batches())
    return vector.grads.clone()


def query_loss_after_steps(
    theta: Tensor, model: nn.Module, minibatches: list[Batch], beta: float, steps: int, decay: float
) -> Tensor:
    """f(T(θ); query) as a function of the flat weights, written as the definition reads."""
    support, query = minibatches
    names = [n for n, _ in model.named_parameters()]
    shapes = [p.shape for p in model.parameters()]
    sizes = [p.numel() for p in model.parameters()]

    def loss(flat: Tensor, batch: Batch) -> Tensor:
        parts = [p.view(s) for p, s in zip(flat.split(sizes), shapes, strict=True)]
        return functional.cross_entropy(functional_call(model, dict(zip(names, parts, strict=True)), batch.x), batch.y)

    for _ in range(steps):
        (gradient,) = torch.autograd.grad(loss(theta, support), theta, create_graph=True)
        theta = theta - beta * (gradient + decay * theta)
    return loss(theta, query)


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("decay", [0.0, 0.2])
def test_full_order_is_the_derivative_of_the_adapted_query_loss(steps: int, decay: float) -> None:
    model = mlp()
    got = meta_gradient(mlp(), inner_lr=0.3, inner_steps=steps, weight_decay=decay)
    theta = nn.utils.parameters_to_vector(model.parameters()).detach().requires_grad_()
    loss = query_loss_after_steps(theta, model, batches(), 0.3, steps, decay)
    torch.testing.assert_close(got, torch.autograd.grad(loss, theta)[0], rtol=1e-12, atol=1e-14)


def test_first_order_is_the_query_gradient_at_the_adapted_weights() -> None:
    model, (support, query) = mlp(), batches()
    theta = nn.utils.parameters_to_vector(model.parameters()).detach().requires_grad_()
    for _ in range(2):
        loss = query_loss_after_steps(theta, model, [query, support], 0.0, 0, 0.0)
        theta = (theta - 0.3 * (torch.autograd.grad(loss, theta)[0] + 0.1 * theta)).detach().requires_grad_()
    expected = torch.autograd.grad(query_loss_after_steps(theta, model, [support, query], 0.0, 0, 0.0), theta)[0]
    got = meta_gradient(mlp(), inner_lr=0.3, inner_steps=2, order="first", weight_decay=0.1)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("steps", [1, 3])
def test_hessian_free_comes_close_to_full(steps: int) -> None:
    full, free, first = (
        meta_gradient(mlp(), inner_lr=0.3, inner_steps=steps, weight_decay=0.1, order=order)
        for order in ("full", "hessian_free", "first")
    )
    assert (free - full).norm() < 1e-5 * full.norm()
    assert (first - full).norm() > 1e-2 * full.norm()


@pytest.mark.parametrize("order", ["full", "first", "hessian_free"])
def test_the_weights_stay_where_they_are(order: str) -> None:
    # Two SGD steps in a row instead of one meta step is the mistake of several Per-FedAvg programs.
    model = mlp()
    vector = ParameterVector(model)
    before = vector.weights.clone()
    Maml(model, vector, inner_lr=0.5, inner_steps=2, order=order).backward(batches())  # type: ignore[arg-type]
    assert torch.equal(vector.weights, before)
    assert all(p.requires_grad for p in vector.parameters)
    assert all(p.grad is not None for p in vector.parameters)


@pytest.mark.parametrize("order", ["full", "first", "hessian_free"])
def test_only_the_query_pass_moves_batch_norm_statistics(order: str) -> None:
    model = NormNet().double()
    vector = ParameterVector(model)
    Maml(model, vector, inner_lr=0.5, inner_steps=3, order=order).backward(batches())  # type: ignore[arg-type]
    assert vector.counters().tolist() == [1.0]
    expected = 0.1 * batches()[1].x.flatten(1).mean(0)
    torch.testing.assert_close(vector.buffers[:FEATURES], expected)
    assert model.norm.training


def test_frozen_batch_norm_stays_frozen() -> None:
    model = NormNet().double()
    model.norm.eval()
    vector = ParameterVector(model)
    Maml(model, vector, inner_steps=2).backward(batches())
    assert not model.norm.training
    assert vector.counters().tolist() == [0.0]


def test_frozen_parameters_are_left_alone() -> None:
    model = mlp()
    model.body[0].weight.requires_grad_(False)
    vector = ParameterVector(model)
    vector.zero_grads()
    Maml(model, vector, inner_steps=1).backward(batches())
    assert vector.untouched() == []
    assert vector.grads.any()


@pytest.mark.parametrize("order", ["full", "first", "hessian_free"])
def test_unused_parameters_get_no_gradient(order: str) -> None:
    model = mlp()
    model.extra = nn.Linear(2, 2).double()
    vector = ParameterVector(model)
    vector.zero_grads()
    Maml(model, vector, inner_steps=1, order=order).backward(batches())  # type: ignore[arg-type]
    assert [vector.layout[i].name for i in vector.untouched()] == ["extra.weight", "extra.bias"]


def test_the_reported_loss_is_the_query_loss_after_adaptation() -> None:
    model = mlp()
    vector = ParameterVector(model)
    report = Maml(model, vector, inner_lr=0.3, inner_steps=2).backward(batches())
    theta = vector.weights.clone().requires_grad_()
    expected = query_loss_after_steps(theta, mlp(), batches(), 0.3, 2, 0.0)
    torch.testing.assert_close(report.loss, expected.detach())
    assert not report.loss.requires_grad
