"""ERM is the mean cross-entropy over all samples of the step together."""

from __future__ import annotations

import torch
from torch.nn import functional

from fedhpc.data.samples import Batch
from tests.federated.federation import CLASSES, FEATURES, make_trainer, mlp


def batch(n: int, seed: int = 0) -> Batch:
    noise = torch.Generator().manual_seed(seed)
    x = torch.randn(n, FEATURES, 1, 1, generator=noise, dtype=torch.float64)
    return Batch(x, torch.randint(CLASSES, (n,), generator=noise))


def test_gradient_is_that_of_the_mean_over_the_batch() -> None:
    trainer = make_trainer(mlp())
    objective, vector, one = trainer.objective, trainer.vector, batch(7)
    vector.zero_grads()
    report = objective.backward([one])
    loss = functional.cross_entropy(objective.model(one.x), one.y)
    expected = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, vector.parameters)])
    torch.testing.assert_close(vector.grads, expected)
    torch.testing.assert_close(report.loss, loss.detach())
    assert not report.loss.requires_grad
    assert vector.untouched() == []


def test_minibatches_of_unequal_size_weigh_by_their_samples() -> None:
    trainer = make_trainer(mlp())
    small, large = batch(2, 1), batch(9, 2)
    trainer.vector.zero_grads()
    trainer.objective.backward([small, large])
    parts = trainer.vector.grads.clone()
    trainer.vector.zero_grads()
    trainer.objective.backward([Batch(torch.cat([small.x, large.x]), torch.cat([small.y, large.y]))])
    torch.testing.assert_close(parts, trainer.vector.grads)


def test_prediction_is_the_models_output() -> None:
    trainer = make_trainer(mlp())
    assert torch.equal(trainer.objective.predict(batch(3).x), trainer.objective.model(batch(3).x))
