"""Layers that models and objectives share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from fedhpc.models.base import Network


class Perceptron(nn.Module):
    """Linear layers; after each but the last dropout, then ReLU (DomainBed's MLP, in this order).

    Args:
        widths: of the input, the hidden layers and the output; at least one hidden layer.
        dropout: probability of zeroing a hidden value.
    """

    def __init__(self, widths: Sequence[int], dropout: float = 0.0) -> None:
        super().__init__()
        self.input = nn.Linear(widths[0], widths[1])
        self.dropout = nn.Dropout(dropout)
        self.hiddens = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths[1:-1]))
        self.output = nn.Linear(widths[-2], widths[-1])

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, first width] to [B, last width]."""
        x = self.dropout(self.input(x)).relu()
        for layer in self.hiddens:
            x = self.dropout(layer(x)).relu()
        result: Tensor = self.output(x)
        return result


def deepen_classifier(model: Network) -> None:
    """Replace a model's linear classifier of p features by p -> p/2 -> p/4 -> classes with ReLU between."""
    p, classes = model.num_features, model.classifier.out_features
    layers = [nn.Linear(p, p // 2), nn.ReLU(), nn.Linear(p // 2, p // 4), nn.ReLU(), nn.Linear(p // 4, classes)]
    model.classifier = nn.Sequential(*layers).to(model.classifier.weight)  # type: ignore[assignment]
