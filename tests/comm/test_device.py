"""Cores and devices are divided fairly, whatever the launcher bound."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from fedhpc.comm.device import Pinning, choose_device, fair_threads, pin, pinning_table, warnings_for
from fedhpc.comm.world import SoloWorld
from fedhpc.errors import ConfigError
from tests.cli.conftest import process_put_back  # noqa: F401 - choosing devices changes the process


def cores(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


@pytest.mark.parametrize(
    ("affinities", "threads"),
    [
        ([cores(0, 1, 2, 3)], [4]),
        ([cores(0, 1, 2, 3)] * 2, [2, 2]),  # unbound ranks see all cores of the node
        ([cores(0, 1, 2, 3)] * 4, [1] * 4),
        ([cores(0)] * 4, [1] * 4),  # more ranks than cores: never 0
        ([cores(0, 1), cores(2, 3)], [2, 2]),  # bound by the launcher
        ([cores(0, 1, 2, 3)] * 3, [1] * 3),
        ([cores(0, 1, 2), cores(2, 3, 4)], [2, 2]),  # overlapping sets: the shared core counts half
        ([cores(*range(6)), cores(0)], [5, 1]),
    ],
)
def test_threads_share_the_cores(affinities: list[frozenset[int]], threads: list[int]) -> None:
    assert [fair_threads(affinities, rank) for rank in range(len(affinities))] == threads


def test_thirds_of_a_core_add_up_to_whole_threads() -> None:
    assert fair_threads([cores(*range(12))] * 3, 1) == 4  # 12 times 1/3 is a hair below 4


@pytest.mark.parametrize(
    ("name", "local_rank", "num_gpus", "device"),
    [
        ("auto", 0, 0, "cpu"),
        ("cpu", 1, 4, "cpu"),
        ("auto", 1, 4, "cuda:1"),
        ("auto", 5, 4, "cuda:1"),
        ("cuda", 3, 4, "cuda:3"),
        ("cuda:2", 0, 4, "cuda:2"),
    ],
)
def test_device_follows_the_local_rank(name: str, local_rank: int, num_gpus: int, device: str) -> None:
    assert choose_device(name, local_rank, num_gpus) == device


@pytest.mark.parametrize(
    ("name", "num_gpus", "message"),
    [
        ("cuda", 0, "CUDA_VISIBLE_DEVICES"),
        ("cuda:4", 4, r"'cuda:4' but torch sees 4"),
        ("cuda:0", 0, "torch sees 0"),
        ("cuda:x", 4, "allowed: auto, cpu, cuda, cuda:N"),
        ("tpu", 4, "allowed"),
    ],
)
def test_devices_that_are_not_there_are_refused(name: str, num_gpus: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        choose_device(name, 0, num_gpus)


def pinning(rank: int, host: str = "n0", threads: int = 1, cores: int = 2, device: str = "cpu") -> Pinning:
    return Pinning(rank, host, rank, cores, threads, device, "CPU" if device == "cpu" else "GPU")


def test_table_has_a_line_for_each_rank() -> None:
    lines = pinning_table([pinning(0), pinning(1, "a-long-host-name")]).splitlines()
    assert lines[0].split() == ["rank", "host", "cores", "threads", "device"]
    assert lines[2].split() == ["1", "a-long-host-name", "2", "1", "cpu", "CPU"]
    assert lines[1].index("2") == lines[2].rindex(" 2 ") + 1


def test_warnings_name_what_a_careful_person_would_see() -> None:
    assert warnings_for([pinning(0), pinning(1)]) == []
    assert warnings_for([pinning(0, threads=4)]) == ["rank 0 uses 4 threads on 2 core(s) of n0"]
    crowd = [dataclasses.replace(pinning(r, threads=2, cores=4), fair=1) for r in range(4)]
    (text,) = warnings_for(crowd)
    assert text.startswith("4 rank(s) of n0 use 2 threads each, 1 would be their share of the cores;")
    shared = [pinning(0, device="cuda:0"), pinning(1, device="cuda:0"), pinning(2, "n1", device="cuda:0")]
    assert warnings_for(shared) == ["2 ranks share cuda:0 of n0: [0, 1]"]


class LocalRank(SoloWorld):
    """One of four ranks of a node."""

    local_size = 4

    def __init__(self, local_rank: int) -> None:
        super().__init__()
        self.rank = self.local_rank = local_rank

    def gather_node(self, small: Any) -> list[Any]:
        return [small] * self.local_size


def test_ranks_take_turns_on_the_gpus_that_the_scheduler_gave_and_show_which(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA shows a process only what CUDA_VISIBLE_DEVICES names, numbered from 0; nothing else may be counted."""
    import torch

    used: list[int] = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cards = [SimpleNamespace(name="A100", uuid=f"GPU-{number}") for number in (1, 3)]
    for name, stand_in in {
        "device_count": lambda: len(cards),
        "get_device_properties": lambda index: cards[index],
        "set_device": lambda name: used.append(int(name.removeprefix("cuda:"))),
        "current_device": lambda: used[-1],
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    found = [pin(LocalRank(local_rank)) for local_rank in range(4)]
    assert used == [0, 1, 0, 1], "what torch was told, not only what is printed"
    assert [p.device for p in found] == ["cuda:0", "cuda:1"] * 2
    assert [p.label for p in found] == ["A100 GPU-1", "A100 GPU-3"] * 2
    assert {p.given for p in found} == {"1,3"}
    assert [line.split()[-1] for line in pinning_table(found).splitlines()[1:]] == ["GPU-1", "GPU-3"] * 2
    assert len([text for text in warnings_for(found) if "2 ranks share cuda:" in text]) == 2
