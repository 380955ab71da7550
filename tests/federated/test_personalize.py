"""Adaptation before evaluation: on the client's own training samples, and on nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedhpc.data.batches import SupportQueryBatches
from fedhpc.data.samples import Samples
from fedhpc.federated.personalize import AdaptByGradient, NearestPrototype, Personalizer
from tests.federated.federation import (
    CLASSES,
    FEATURES,
    Federation,
    federate,
    make_clients,
    make_trainer,
    mlp,
    norm_federation,
)

PERSONALIZERS: dict[str, tuple[str, Personalizer]] = {
    "maml": ("maml", AdaptByGradient(lr=0.2, steps=3)),
    "proto": ("proto", NearestPrototype(CLASSES)),
}


def personal(name: str, **options: Any) -> Federation:
    objective, personalizer = PERSONALIZERS[name]
    return federate(
        objective=objective, personalizer=personalizer, batches=SupportQueryBatches(0, 3, steps=2), rounds=1, **options
    )


@pytest.mark.parametrize("name", PERSONALIZERS)
def test_adaptation_never_sees_test_samples(name: str) -> None:
    # Whatever the test labels and pixels are: the weights, the prototypes and so the scores are the same.
    personalizer = PERSONALIZERS[name][1]
    clients = make_clients()
    probe = clients.test(0).x

    def scores(tests: list[Samples]) -> Tensor:
        f = personal(name)
        f.clients.tests[:] = tests
        f.run()
        f.trainer.vector.weights.copy_(f.weights)
        return personalizer.predictor(f.trainer, f.clients.train(0))(probe).detach()

    shuffled = [Samples(s.x.flip(0) * 3, (s.y + 1) % CLASSES) for s in clients.tests]
    assert torch.equal(scores(clients.tests), scores(shuffled))


@pytest.mark.parametrize("name", PERSONALIZERS)
def test_only_the_clients_own_training_samples_count(name: str) -> None:
    def accuracy(touch: int | None) -> list[float]:
        f = personal(name, clients=make_clients(num_test=100), settings={"evaluate_every": 1})
        if touch is not None:
            f.clients.trains[touch].y[:] = (f.clients.trains[touch].y + 1) % CLASSES
        f.engine._broadcast(f.engine._down.order)
        f.engine._examiner.examine(f.engine.snapshot(), f.engine.placement, f.engine._down, f.sink, lambda: False)
        return f.sink.values("client_accuracy")

    plain, touched = accuracy(None), accuracy(1)
    assert plain[0] == touched[0]
    assert plain[2] == touched[2]
    assert plain[1] != touched[1]


def test_gradient_steps_are_full_batch_without_weight_decay() -> None:
    data = make_clients((11,)).train(0)
    trainer = make_trainer(mlp(dropout=0.5), weight_decay=0.3)
    model = mlp()
    predict = AdaptByGradient(lr=0.2, steps=3, batch_size=4).predictor(trainer, data)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(3):
        optimizer.zero_grad()
        functional.cross_entropy(model(data.x), data.y).backward()
        optimizer.step()
    expected = torch.nn.utils.parameters_to_vector(model.parameters())
    torch.testing.assert_close(trainer.vector.weights, expected.detach())
    trainer.objective.eval()
    torch.testing.assert_close(predict(data.x), model(data.x))


def test_clip_bounds_each_adaptation_step() -> None:
    data = make_clients((11,)).train(0)
    trainer = make_trainer(mlp())
    start = trainer.vector.weights.clone()
    AdaptByGradient(lr=0.5, steps=1, clip=0.01).predictor(trainer, data)
    assert float((trainer.vector.weights - start).norm()) == pytest.approx(0.5 * 0.01, rel=1e-3)


def test_zero_steps_are_the_plain_model() -> None:
    data = make_clients((11,)).train(0)
    trainer = make_trainer(mlp())
    start = trainer.vector.weights.clone()
    AdaptByGradient(lr=0.5, steps=0).predictor(trainer, data)
    assert torch.equal(trainer.vector.weights, start)


@pytest.mark.parametrize("batch_size", [1, 5, 1000])
def test_prototypes_come_from_all_training_samples(batch_size: int) -> None:
    clients = make_clients((17,))
    data, trainer = clients.train(0), make_trainer(mlp(), objective="proto")
    scores = NearestPrototype(CLASSES, batch_size).predictor(trainer, data)(clients.test(0).x)
    features = trainer.objective.model.features
    for k in range(CLASSES):
        prototype = features(data.x[data.y == k]).mean(0)
        expected = -((features(clients.test(0).x) - prototype) ** 2).sum(1)
        torch.testing.assert_close(scores[:, k], expected)


def test_classes_keep_their_ids_and_unknown_ones_never_win() -> None:
    # One training sample of class 2 and one of class 0; the test set lacks class 0.
    x = torch.eye(FEATURES, dtype=torch.float64)[:2].view(2, FEATURES, 1, 1) * 5
    trainer = make_trainer(mlp(), objective="proto")
    predict = NearestPrototype(CLASSES).predictor(trainer, Samples(x, torch.tensor([2, 0])))
    scores = predict(x)
    assert scores.shape == (2, CLASSES)
    assert scores.argmax(1).tolist() == [2, 0]
    assert torch.isneginf(scores[:, 1]).all()


def test_batch_norm_statistics_stay_through_adaptation() -> None:
    for name in PERSONALIZERS:
        objective, personalizer = PERSONALIZERS[name]
        f = norm_federation(objective=objective, batches=SupportQueryBatches(0, 3, steps=2), rounds=1).run()
        before = f.trainer.vector.buffers.clone(), f.trainer.vector.counters()
        personalizer.predictor(f.trainer, f.clients.train(0))
        assert torch.equal(f.trainer.vector.buffers, before[0])
        assert torch.equal(f.trainer.vector.counters(), before[1])
