"""CDANN: features from which the environment can't be told once the class is known."""

from __future__ import annotations

import torch
from torch import Tensor

from fedhpc.objectives._adversarial import Adversarial


def class_weights(labels: Tensor, num_classes: int) -> Tensor:
    """float32 [n] weights 1/(count of the row's class · M), M = the largest label among the rows, plus one.

    Neither the number of classes nor of those present: the original's rule, so the sum changes with the top class.
    """
    counts = torch.zeros(num_classes, dtype=torch.int64, device=labels.device)
    counts.index_add_(0, labels, torch.ones_like(labels))
    return 1.0 / (counts[labels] * (labels.max() + 1)).float()


class Cdann(Adversarial):
    """Conditional domain-adversarial training (Li et al., 2018): each class's embedding is added to its features."""

    def inputs(self, features: Tensor, labels: Tensor) -> Tensor:
        """See `Adversarial.inputs`."""
        embedded: Tensor = self.class_embeddings(labels)
        return features + embedded

    def weigh(self, losses: Tensor, labels: Tensor) -> Tensor:
        """See `Adversarial.weigh`."""
        return (class_weights(labels, self._classes) * losses).sum()


OBJECTIVE = Cdann
