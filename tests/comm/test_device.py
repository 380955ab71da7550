"""Cores and devices are divided fairly, whatever the launcher bound."""

from __future__ import annotations

import dataclasses

import pytest

from fedhpc.comm.device import Pinning, choose_device, fair_threads, pinning_table, warnings_for
from fedhpc.errors import ConfigError


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
