"""One client's work in one round: nothing of another client, round or evaluation reaches it."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedhpc.data.batches import ShuffledBatches
from fedhpc.data.samples import Batch, Samples
from fedhpc.data.transforms import Transform
from fedhpc.objectives.base import Objective, StepReport
from fedhpc.train.evaluate import evaluate
from fedhpc.train.local import LocalSettings, LocalTrainer
from tests.federated.federation import NormNet, make_clients, make_trainer, mlp


def train(
    trainer: LocalTrainer, samples: Samples, client: int = 0, round: int = 0, start: Tensor | None = None
) -> Tensor:
    weights = torch.zeros_like(trainer.vector.weights) + 0.1 if start is None else start
    buffers = trainer.vector.buffers.clone()
    return trainer.begin(client, round, samples, weights, buffers, 1.0).train().clone()


def pixels(n: int = 12) -> Samples:
    noise = torch.Generator().manual_seed(0)
    x = torch.randint(256, (n, 2, 2, 1), generator=noise).to(torch.uint8)
    return Samples(x, torch.randint(3, (n,), generator=noise))


class Everything:
    """Three steps on all samples, the same for every client and round, so that only noise can differ."""

    def batches(self, client: int, round: int, num_samples: int) -> Iterator[tuple[np.ndarray, ...]]:
        return iter([(np.arange(num_samples),)] * 3)

    def num_steps(self, num_samples: int) -> int:
        return 3


def test_learning_rate_decays_per_round() -> None:
    settings = LocalSettings(0, lr=0.2, lr_decay=0.5)
    assert [settings.lr_of(r) for r in range(3)] == [0.2, 0.1, 0.05]


def test_one_epoch_is_plain_sgd_over_its_batches() -> None:
    data = make_clients((10,)).train(0)
    trainer = make_trainer(mlp(), ShuffledBatches(3, 4, epochs=2), lr=0.2, lr_decay=0.5, weight_decay=0.1)
    got = train(trainer, data, client=5, round=1)
    model = mlp()
    torch.nn.utils.vector_to_parameters(torch.zeros_like(got) + 0.1, model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    for (positions,) in ShuffledBatches(3, 4, epochs=2).batches(5, 1, 10):
        optimizer.zero_grad()
        functional.cross_entropy(model(data.x[positions]), data.y[positions]).backward()
        optimizer.step()
    torch.testing.assert_close(got, torch.nn.utils.parameters_to_vector(model.parameters()).detach())


def test_steps_and_loss_are_counted_as_taken() -> None:
    data = make_clients((10,)).train(0)
    trainer = make_trainer(mlp(), ShuffledBatches(0, 4, epochs=2))
    local = trainer.begin(0, 0, data, trainer.vector.weights.clone(), trainer.vector.buffers, 1.0)
    assert (local.num_steps, local.num_samples) == (0, 10)
    assert np.isnan(local.mean_loss)
    local.train()
    assert local.num_steps == 6  # two epochs of batches of 4, 4 and 2
    assert 0 < local.mean_loss < 10


class SkipsOdd(Objective):
    """Finds every second step unusable."""

    calls = 0

    def backward(self, minibatches: list[Batch]) -> StepReport:
        self.calls += 1
        return StepReport(torch.tensor(2.0 if self.calls % 2 else 100.0), skip=self.calls % 2 == 0)

    def predict(self, x: Tensor) -> Tensor:
        raise AssertionError


def test_skipped_steps_count_neither_as_steps_nor_in_the_loss() -> None:
    trainer = make_trainer(mlp(), ShuffledBatches(0, 4, steps=5), objective=SkipsOdd)
    local = trainer.begin(
        0, 0, make_clients((10,)).train(0), trainer.vector.weights.clone(), trainer.vector.buffers, 1.0
    )
    local.train()
    assert local.num_steps == 3
    assert local.mean_loss == 2.0


def test_clients_do_not_see_each_other() -> None:
    clients = make_clients((8, 8))
    make = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    noisy = {"optimizer": make, "model": mlp(dropout=0.5)}
    alone = [train(make_trainer(**noisy), clients.train(c), c) for c in (0, 1)]  # type: ignore[arg-type]
    shared = make_trainer(**noisy)  # type: ignore[arg-type]
    for order in ((0, 1), (1, 0), (1, 1, 0)):
        for client in order:
            assert torch.equal(train(shared, clients.train(client), client), alone[client])


def test_dropout_depends_on_client_and_round_alone() -> None:
    data = make_clients((8,)).train(0)
    trainer = make_trainer(mlp(dropout=0.5), Everything())
    first = train(trainer, data, client=3, round=2)
    torch.rand(17)
    assert torch.equal(train(trainer, data, client=3, round=2), first)
    assert not torch.equal(train(trainer, data, client=4, round=2), first)
    assert not torch.equal(train(trainer, data, client=3, round=1), first)


def test_augmentation_depends_on_client_and_round_alone() -> None:
    seen: list[Tensor] = []

    def spy(x: Tensor, noise: torch.Generator | None, train: bool) -> Tensor:
        result = Transform(flip=True, crop_pad=1, dtype=torch.float64)(x, noise, train)
        seen.append(result.clone())
        return result

    trainer = make_trainer(mlp(), Everything(), transform=spy)

    def views(client: int, round: int) -> Tensor:
        seen.clear()
        train(trainer, pixels(), client, round)
        return torch.cat(seen)

    first = views(0, 0)
    assert not torch.equal(first[:12], first[12:24])  # each step draws anew
    views(1, 0)
    torch.rand(5)
    assert torch.equal(views(0, 0), first)
    assert not torch.equal(views(1, 0), first)
    assert not torch.equal(views(0, 1), first)


def test_batch_norm_begins_from_the_given_statistics() -> None:
    data = make_clients((8,)).train(0)
    trainer = make_trainer(NormNet().double())
    start = trainer.vector.buffers.clone()
    ends = []
    for _ in range(2):
        trainer.begin(0, 0, data, trainer.vector.weights.clone(), start, 1.0).train()
        ends.append(trainer.vector.buffers.clone())
    assert torch.equal(*ends)
    assert not torch.equal(ends[0], start)


def test_full_gradient_is_that_of_all_samples_with_weight_decay() -> None:
    data = make_clients((11,)).train(0)
    trainer = make_trainer(mlp(dropout=0.5), weight_decay=0.1)
    local = trainer.begin(0, 0, data, trainer.vector.weights.clone(), trainer.vector.buffers, 1.0)
    got = local.full_gradient()
    model = trainer.objective.model.eval()
    loss = functional.cross_entropy(model(data.x), data.y)
    expected = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))])
    torch.testing.assert_close(got, expected + 0.1 * trainer.vector.weights)
    trainer.objective.train()
    assert model.training


@pytest.mark.parametrize("batch_size", [1, 4, 11, 256])
def test_full_gradient_does_not_depend_on_how_samples_pass(batch_size: int) -> None:
    data = make_clients((11,)).train(0)
    trainer = make_trainer(NormNet().double())
    before = trainer.vector.buffers.clone(), trainer.vector.counters()
    whole = trainer.mean_gradient(data, 1000)
    torch.testing.assert_close(trainer.mean_gradient(data, batch_size), whole)
    assert torch.equal(trainer.vector.buffers, before[0])
    assert torch.equal(trainer.vector.counters(), before[1])


def test_evaluation_between_clients_changes_nothing() -> None:
    clients = make_clients((8, 8))
    trainer = make_trainer(NormNet().double())
    first = train(trainer, clients.train(0))
    trainer = make_trainer(NormNet().double())
    before = trainer.vector.weights.clone(), trainer.vector.buffers.clone(), torch.get_rng_state()
    evaluate(trainer.objective, clients.test(1), trainer.transform)
    assert torch.equal(trainer.vector.weights, before[0])
    assert torch.equal(trainer.vector.buffers, before[1])
    assert torch.equal(torch.get_rng_state(), before[2])
    assert torch.equal(train(trainer, clients.train(0)), first)


def test_a_plan_may_dictate_batches() -> None:
    class Dictated:
        def batches(self, client: int, round: int, num_samples: int) -> Iterator[tuple[np.ndarray, ...]]:
            yield (np.array([2, 0]),)

        def num_steps(self, num_samples: int) -> int:
            return 1

    data = make_clients((6,)).train(0)
    trainer = make_trainer(mlp(), Dictated(), lr=1.0)
    start = trainer.vector.weights.clone()
    moved = train(trainer, data, start=start) - start
    trainer.vector.weights.copy_(start)
    expected = trainer.mean_gradient(data.at(torch.tensor([2, 0])))
    torch.testing.assert_close(moved, -expected)
