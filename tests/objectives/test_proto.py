"""ProtoNet: distances to class means, the classes that are there, and the classifier that is not used."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedhpc.data.samples import Batch
from fedhpc.objectives.base import StepReport
from fedhpc.objectives.proto import Proto, proto_scores, prototypes
from fedhpc.tensors.vector import ParameterVector
from tests.federated.federation import FEATURES, mlp


def batch(labels: list[int], seed: int = 0) -> Batch:
    noise = torch.Generator().manual_seed(seed)
    return Batch(torch.randn(len(labels), FEATURES, 1, 1, generator=noise, dtype=torch.float64), torch.tensor(labels))


def step(support: Batch, query: Batch) -> tuple[StepReport, ParameterVector, Proto]:
    model = mlp()
    vector = ParameterVector(model)
    objective = Proto(model, vector)
    vector.zero_grads()
    return objective.backward([support, query]), vector, objective


def loss_by_hand(objective: Proto, support: Batch, query: Batch) -> Tensor:
    features = objective.model.features
    means = {c: features(support.x[support.y == c]).mean(0) for c in sorted(set(support.y.tolist()))}
    losses = []
    for x, y in zip(features(query.x), query.y.tolist(), strict=True):
        if y in means:
            scores = torch.stack([-((x - m) ** 2).sum() for m in means.values()])
            losses.append(-scores.log_softmax(0)[list(means).index(y)])
    return torch.stack(losses).mean()


@pytest.mark.parametrize(
    ("support", "query"),
    [([0, 1, 2, 0, 1], [2, 1, 0]), ([2, 2, 0], [0, 2, 1, 0]), ([1], [1, 0, 2])],
    ids=["all classes", "class 1 has no prototype", "one class"],
)
def test_loss_and_gradient_follow_the_definition(support: list[int], query: list[int]) -> None:
    s, q = batch(support, 1), batch(query, 2)
    report, vector, objective = step(s, q)
    expected = loss_by_hand(objective, s, q)
    torch.testing.assert_close(report.loss, expected.detach())
    used = vector.parameters[:-2]
    gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(expected, used)])
    torch.testing.assert_close(vector.grads[: len(gradient)], gradient)


def test_the_classifier_gets_no_gradient() -> None:
    _, vector, _ = step(batch([0, 1, 2]), batch([0, 1, 2], 1))
    assert [vector.layout[i].name for i in vector.untouched()] == ["classifier.weight", "classifier.bias"]
    start = vector.layout[-2].start
    assert not vector.grads[start:].any()
    assert vector.grads[:start].any()


def test_without_a_usable_query_the_step_is_skipped() -> None:
    report, vector, _ = step(batch([0, 0, 1]), batch([2, 2]))
    assert report.skip
    assert not vector.grads.any()
    assert len(vector.untouched()) == len(vector.layout)


def test_gradient_flows_through_support_and_query() -> None:
    s, q = batch([0, 1, 2]), batch([0, 1, 2], 1)
    for x in (s.x, q.x):
        x.requires_grad_()
    step(s, q)
    assert s.x.grad is not None
    assert q.x.grad is not None
    assert s.x.grad.any()
    assert q.x.grad.any()


def test_prototypes_are_class_means_with_their_class_ids() -> None:
    embeddings = torch.tensor([[0.0, 2.0], [4.0, 0.0], [2.0, 4.0]])
    means, classes = prototypes(embeddings, torch.tensor([7, 2, 7]))
    assert classes.tolist() == [2, 7]
    assert means.tolist() == [[4.0, 0.0], [1.0, 3.0]]


def test_scores_are_minus_squared_distances() -> None:
    scores = proto_scores(torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 1.0], [4.0, 5.0]]))
    assert scores.tolist() == [[0.0, -25.0]]
