"""Seeding torch's own stream."""

from __future__ import annotations

import torch

from fedhpc.tensors.streams import seed_torch


def test_it_gives_the_numbers_of_manual_seed() -> None:
    for seed in (0, 7, 2**63 - 1):
        torch.manual_seed(seed)
        expected = torch.rand(5)
        seed_torch(seed)
        assert torch.equal(torch.rand(5), expected)


def test_seeds_of_64_bits_are_taken() -> None:
    seed_torch(2**64 - 1)
    high = torch.rand(5)
    seed_torch(2**63 - 1)
    assert torch.equal(torch.rand(5), high)
