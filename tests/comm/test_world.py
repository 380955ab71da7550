"""The world of one rank, and how a process finds out which world it is in."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from fedhpc.comm.world import SoloWorld, World
from fedhpc.errors import ConfigError, FedhpcError


def test_one_rank_is_the_root_and_alone() -> None:
    world: World = SoloWorld()
    assert (world.rank, world.size, world.local_rank, world.local_size, world.is_root) == (0, 1, 0, 1, True)
    assert world.gather("x") == ["x"]
    assert world.gather_node("x") == ["x"]
    assert world.share({"a": 1}) == {"a": 1}
    world.barrier()
    world.close()
    world.exchange({}, {})
    with pytest.raises(AssertionError, match="no peers"):
        world.exchange({1: torch.zeros(1)}, {})
    with pytest.raises(AssertionError, match="no peers"):
        world.exchange({}, {1: torch.zeros(1)})


def test_collectives_leave_the_buffer_and_are_counted_with_their_bytes() -> None:
    world = SoloWorld()
    buf = torch.arange(5.0, dtype=torch.float64)
    world.broadcast_(buf)
    world.broadcast_(buf[:2].float())
    world.reduce_sum_(buf)
    assert torch.equal(buf, torch.arange(5.0, dtype=torch.float64))
    assert world.calls == {"broadcast": 2, "reduce": 1}
    assert world.moved == {"broadcast": 48, "reduce": 40}
    assert world.spent == {"broadcast": 0.0, "reduce": 0.0}


def test_counts_belong_to_one_world() -> None:
    first = SoloWorld()
    first.broadcast_(torch.zeros(1))
    assert SoloWorld().calls == {}


def test_agree_raises_the_problem_as_it_is() -> None:
    world = SoloWorld()
    world.agree(None)
    problem = ConfigError("no such key")
    with pytest.raises(ConfigError) as caught:
        world.agree(problem)
    assert caught.value is problem
    with pytest.raises(FedhpcError, match="disk full"):
        world.agree("disk full")


def test_without_a_launcher_no_mpi_library_is_touched() -> None:
    code = (
        "import sys; sys.modules['mpi4py'] = None\n"
        "from fedhpc.comm.world import open_world\n"
        "assert type(open_world()).__name__ == 'SoloWorld'\n"
        "assert 'torch' not in sys.modules"
    )
    clean = {"PYTHONPATH": "."}
    assert subprocess.run([sys.executable, "-c", code], env=clean).returncode == 0
