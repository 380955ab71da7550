"""Milliseconds of one server update of an 11 M parameter model, per algorithm.

python bench/server_update.py [--weights 11000000]
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from fedhpc import registry
from fedhpc.comm.process import keep_freed_memory
from fedhpc.federated.buffers import Sizes, Up
from fedhpc.federated.server import Server

CLIENTS = 10


def milliseconds(name: str, num_weights: int) -> float:
    """Median over nine updates."""
    rule = registry.load("fedhpc.federated.algorithms", name).ALGORITHM()
    nothing = torch.empty(0, dtype=torch.float64)
    server = Server(rule, torch.randn(num_weights), nothing, nothing)
    up = Up(tuple(rule.traffic.summed), Sizes(num_weights, 0, 0, CLIENTS), torch.float64)
    up.data.normal_(std=1e-3)
    up.rows[:] = torch.tensor([1 / CLIENTS, 1 / CLIENTS, 1, 1, 1, 1], dtype=torch.float64)
    seconds = []
    for round in range(10):
        began = time.perf_counter()
        server.update(up, tuple(range(CLIENTS)), round, CLIENTS, "skip")
        seconds.append(time.perf_counter() - began)
    return 1000 * statistics.median(seconds[1:])


def main() -> None:
    """Print one line per algorithm."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=int, default=11_000_000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    for name in registry.names("fedhpc.federated.algorithms"):
        print(f"{name:10s} {milliseconds(name, args.weights):6.1f} ms")


if __name__ == "__main__":
    main()
