"""DANN and CDANN: the gradient penalty and the turns of the two parts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedhpc.objectives.setting import Setting
from fedhpc.train.correction import Correction
from tests.objectives.built import ADVERSARIAL, FEATURES, build, minibatches


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_gradient_penalty_against_finite_differences(name: str) -> None:
    """The mean squared norm of the gradient of the summed loss with respect to what the discriminator sees."""
    objective, _ = build(name, profile="head", grad_penalty=1.0)
    data = minibatches(rows=2)
    z = torch.randn(6, FEATURES, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    y = torch.cat([b.y for b in data])
    environments = torch.arange(3).repeat_interleave(2)
    shift = objective.class_embeddings(y).detach() if name == "cdann" else 0

    def summed(inputs: Tensor) -> Tensor:
        return functional.cross_entropy(objective.discriminator(inputs), environments, reduction="sum")

    gradient, delta = torch.zeros_like(z), 1e-6
    with torch.no_grad():
        for i in range(z.numel()):
            step = torch.zeros_like(z).view(-1)
            step[i] = delta
            up, down = (summed(z + shift + sign * step.view_as(z)) for sign in (1, -1))
            gradient.view(-1)[i] = (up - down) / (2 * delta)
    found = objective._discrimination(z.clone().requires_grad_(), y, data)
    objective.setting = Setting(3, {**objective.setting.hparams, "grad_penalty": 0.0}, "head")
    without = objective._discrimination(z.clone().requires_grad_(), y, data)
    assert float((found - without).detach()) == pytest.approx(float(gradient.square().sum(1).mean()), rel=1e-6)


def test_published_gradient_penalty_is_zero_for_equal_minibatches() -> None:
    with_penalty, solver = build("dann", grad_penalty=5.0)
    without, other = build("dann")
    for step in range(4):
        solver.step(minibatches(step=step))
        other.step(minibatches(step=step))
    torch.testing.assert_close(with_penalty.vector.weights, without.vector.weights, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_the_two_parts_take_turns(name: str) -> None:
    """Weight decay, momentum and corrections of one must not move the other."""
    objective, solver = build(name, d_steps_per_g_step=2, weight_decay_g=0.1, weight_decay_d=0.1)
    own = [p for group in objective.optimizers().values() for p in group.parameters]
    correction = Correction(linear=torch.ones_like(objective.vector.weights))
    steps = []
    for step in range(7):
        before, before_own = objective.vector.weights.clone(), [p.detach().clone() for p in own]
        report = solver.step(minibatches(step=step), correction)
        moved = not torch.equal(before, objective.vector.weights)
        moved_own = any(not torch.equal(a, b) for a, b in zip(before_own, own, strict=True))
        assert moved != moved_own
        assert list(report.metrics) == (["gen_loss"] if moved else ["disc_loss"])
        steps.append("G" if moved else "D")
    assert "".join(steps) == "DGDDGDD"
    embedding = objective.class_embeddings.weight
    assert (embedding.grad is None) == (name == "dann")
