"""IRM: its penalty and the end of its warm-up."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from fedhpc.objectives import irm
from tests.objectives.built import build, minibatches


def test_irm_starts_the_optimizer_anew_once() -> None:
    _, solver = build("irm", irm_penalty_anneal_iters=2, irm_lambda=7.0)
    resets = []
    for step in range(4):
        report = solver.step(minibatches(step=step))
        weight = (report.metrics["loss"] - report.metrics["nll"]) / report.metrics["penalty"]
        assert float(weight) == pytest.approx(1.0 if step < 2 else 7.0)
        resets.append(bool(report.resets))
        counted = {int(v) for k, v in solver.state().items() if k.endswith("/step")}
        assert counted == {step + 1 if step < 2 else step - 1}
    assert resets == [False, False, True, False]


def test_irm_penalty_by_automatic_differentiation() -> None:
    scores = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3, 0, 1, 2])
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    parts = [functional.cross_entropy(scale * scores[i::2], labels[i::2]) for i in (0, 1)]
    expected = [torch.autograd.grad(part, scale)[0] for part in parts]
    torch.testing.assert_close(irm.penalty(scores, labels), expected[0] * expected[1])
    assert float(irm.penalty(scores[:1], labels[:1])) == 0
