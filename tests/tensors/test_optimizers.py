"""Light optimizers step as torch's own do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedhpc.tensors.optimizers import light


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
        (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1, "betas": (0.5, 0.9)}),
    ],
)
def test_light_optimizers_take_the_same_steps(kind: type[torch.optim.Optimizer], settings: dict[str, Any]) -> None:
    ends = []
    for make in (kind, light(kind)):
        generator = torch.Generator().manual_seed(0)
        weights = torch.nn.Parameter(torch.randn(50, generator=generator))
        optimizer = make([weights], **settings)
        for _ in range(5):
            weights.grad = torch.randn(50, generator=generator)
            optimizer.step()
        assert isinstance(optimizer, kind)
        assert weights.requires_grad
        ends.append(weights.detach())
    assert torch.equal(*ends)
