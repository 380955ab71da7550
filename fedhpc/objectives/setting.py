"""What an objective of the domain-generalization study is built for, and where its random choices come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from fedhpc.objectives.hparams import Profile, Value
from fedhpc.seeding import generator


class Draws(Protocol):
    """Random choices of one step; injectable, so that tests can dictate them."""

    def permutation(self, step: int, n: int) -> list[int]:
        """An order of 0 ... n-1."""
        ...

    def mixing(self, step: int, pair: int, alpha: float) -> float:
        """A draw from Beta(alpha, alpha) for one pair of minibatches."""
        ...


@dataclass(frozen=True)
class NamedDraws:
    """Streams named by step and consumer: they depend neither on earlier steps nor on a restart."""

    seed: int

    def permutation(self, step: int, n: int) -> list[int]:
        """See `Draws.permutation`."""
        return [int(i) for i in generator(self.seed, "permutation", step).permutation(n)]

    def mixing(self, step: int, pair: int, alpha: float) -> float:
        """See `Draws.mixing`."""
        return float(generator(self.seed, "mixing", step, pair).beta(alpha, alpha))


class TorchDraws:
    """Torch's global CPU generator, which local training seeds by client and round."""

    def permutation(self, step: int, n: int) -> list[int]:
        """See `Draws.permutation`."""
        import torch

        return [int(i) for i in torch.randperm(n)]

    def mixing(self, step: int, pair: int, alpha: float) -> float:
        """See `Draws.mixing`."""
        import torch

        return float(torch.distributions.Beta(float(alpha), float(alpha)).sample())


@dataclass(frozen=True)
class Setting:
    """What an objective of the domain-generalization study is built for.

    Attributes:
        num_environments: environments that minibatches can come from.
        hparams: values by name; what is missing takes its default.
        profile: which of two variants, where the published tables and the original's last state differ.
        draws: source of permutations and mixing weights.
    """

    num_environments: int = 1
    hparams: Mapping[str, Value] = field(default_factory=dict)
    profile: Profile = "paper"
    draws: Draws = field(default_factory=TorchDraws)
