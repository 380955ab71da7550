"""DANN: features from which the environment can't be told."""

from __future__ import annotations

from torch import Tensor

from fedhpc.objectives._adversarial import Adversarial


class Dann(Adversarial):
    """Domain-adversarial training (Ganin et al., 2016); the class embeddings are unused and get no gradient."""

    def inputs(self, features: Tensor, labels: Tensor) -> Tensor:
        """See `Adversarial.inputs`."""
        return features

    def weigh(self, losses: Tensor, labels: Tensor) -> Tensor:
        """See `Adversarial.weigh`."""
        return losses.mean()


OBJECTIVE = Dann
