"""The floor of a federated round: the same local SGD steps as plain PyTorch users write them, without communication.

One process per rank. It trains its share of the clients one after another: reset the model, iterate batches, step.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn
from torch.nn import functional


def plain_model() -> nn.Module:
    """The CNN of the HEM study (797,962 weights), written as one would without this package."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1600, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10),
    )  # fmt: skip


class Floor:
    """Holds every client's samples as float tensors, as plain pipelines do."""

    def __init__(self, images: Sequence[np.ndarray], labels: Sequence[np.ndarray], tuned: bool) -> None:
        self.tuned = tuned
        self.model = plain_model()
        if tuned:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.start = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.x = [self._input(pixels) for pixels in images]
        self.y = [torch.from_numpy(found) for found in labels]

    def _input(self, pixels: np.ndarray) -> torch.Tensor:
        x = torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div(255)
        return x.contiguous(memory_format=torch.channels_last if self.tuned else torch.contiguous_format)

    def round(self, clients: Sequence[int], batch_size: int, lr: float) -> float:
        """Train the clients for one epoch each; returns the seconds it took."""
        began = time.perf_counter()
        for client in clients:
            self.model.load_state_dict(self.start)
            optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
            order = torch.randperm(len(self.y[client]))
            for start in range(0, len(order), batch_size):
                rows = order[start : start + batch_size]
                optimizer.zero_grad()
                functional.cross_entropy(self.model(self.x[client][rows]), self.y[client][rows]).backward()
                optimizer.step()
        return time.perf_counter() - began
