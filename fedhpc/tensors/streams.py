"""torch's own stream of random numbers, for layers that take no generator (dropout)."""

from __future__ import annotations

import torch


def seed_torch(seed: int) -> None:
    """Seed torch's stream on the CPU and, where CUDA is in use, on every device.

    Like `torch.manual_seed`, which also formats the call stack wherever CUDA is not in use: dear beside a small step.

    Args:
        seed: 0 to 2**64 - 1; reduced to what torch takes.
    """
    torch.default_generator.manual_seed(seed % 2**63)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed % 2**63)
