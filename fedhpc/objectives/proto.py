"""ProtoNet: classify queries by their distance to the class means of the support batch."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedhpc.data.samples import Batch
from fedhpc.objectives.base import Objective, StepReport


def prototypes(embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Class means of embeddings.

    Args:
        embeddings: [n, dim].
        labels: [n] class ids.

    Returns:
        Means [classes present, dim] and their class ids, ascending.
    """
    classes, index = torch.unique(labels, return_inverse=True)
    member = functional.one_hot(index, len(classes)).to(embeddings.dtype)
    return member.T @ embeddings / member.sum(0).unsqueeze(1), classes


def proto_scores(embeddings: Tensor, means: Tensor) -> Tensor:
    """[n, classes] minus the squared Euclidean distance of each embedding [n, dim] to each mean [classes, dim]."""
    return -(embeddings.unsqueeze(1) - means.unsqueeze(0)).square().sum(2)


def embed(objective: Objective, x: Tensor) -> Tensor:
    """[n, num_features] last hidden layer of an objective's model, after its nonlinearity."""
    embeddings: Tensor = objective.model.features(x)  # type: ignore[operator]
    return embeddings


class Proto(Objective):
    """Mean cross-entropy of softmax(-‖φ(q) - p_k‖²) over the query batch (Snell et al., 2017, eq. 1 and 2).

    φ is the last hidden layer after its nonlinearity; the classifier is unused and gets no gradient. Gradients flow
    through support and query. Queries whose class has no prototype are dropped; if none remain the step is skipped.
    """

    minibatches_per_step: ClassVar[int] = 2

    def backward(self, minibatches: list[Batch]) -> StepReport:
        """See `Objective.backward`; the minibatches are support and query."""
        support, query = minibatches
        means, classes = prototypes(embed(self, support.x), support.y)
        covered = torch.isin(query.y, classes)
        if not bool(covered.any()):
            return StepReport(means.new_zeros(()), skip=True)
        scores = proto_scores(embed(self, query.x)[covered], means)
        loss = functional.cross_entropy(scores, torch.searchsorted(classes, query.y[covered]))
        loss.backward()
        return StepReport(loss.detach())

    def predict(self, x: Tensor) -> Tensor:
        """Scores of the unused classifier; evaluation builds prototypes instead."""
        scores: Tensor = self.model(x)
        return scores


OBJECTIVE = Proto
