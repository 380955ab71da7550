"""A client's vectors live at home, travel when it trains elsewhere, and come back changed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from fedhpc.comm.world import SoloWorld
from fedhpc.federated.client_state import ClientStateStore, fetch_away, return_home


class PostOffice(SoloWorld):
    """Ranks as threads of this process that can only exchange buffers; every message is copied, as MPI does."""

    def __init__(self, rank: int, boxes: dict[tuple[int, int], queue.Queue[Tensor]], size: int) -> None:
        super().__init__()
        self.rank, self.size, self._boxes = rank, size, boxes  # type: ignore[misc]

    def exchange(self, sends: Mapping[int, Tensor], receives: Mapping[int, Tensor]) -> None:
        for peer, buf in sends.items():
            assert buf.is_contiguous()
            self.calls["exchange"] += 1
            self._boxes[self.rank, peer].put(buf.clone())
        for peer, buf in receives.items():
            message = self._boxes[peer, self.rank].get(timeout=10)
            assert message.numel() == buf.numel()
            assert message.dtype == buf.dtype
            buf.copy_(message)


def on_ranks(size: int, work: Callable[[PostOffice], None]) -> list[PostOffice]:
    """Run `work` on every rank at once; nothing may be left in the boxes."""
    boxes: dict[tuple[int, int], queue.Queue[Tensor]] = {
        (a, b): queue.Queue() for a in range(size) for b in range(size)
    }
    worlds, failures = [PostOffice(r, boxes, size) for r in range(size)], []

    def guarded(world: PostOffice) -> None:
        try:
            work(world)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(w,)) for w in worlds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not failures, failures
    assert all(box.empty() for box in boxes.values())
    return worlds


def make_store() -> ClientStateStore:
    return ClientStateStore({"control": torch.zeros(3), "last": torch.tensor([7.0, 8.0])})


def test_a_client_that_never_trained_has_the_initial_state() -> None:
    store = make_store()
    assert store.size == 5
    assert store.clients() == []
    assert {k: v.tolist() for k, v in store.get(4).items()} == {"control": [0.0] * 3, "last": [7.0, 8.0]}


def test_states_are_kept_by_client() -> None:
    store = make_store()
    store.put(4, store.join({"last": torch.tensor([1.0, 2.0]), "control": torch.arange(3.0)}))
    assert store.clients() == [4]
    assert store.get(4)["control"].tolist() == [0.0, 1.0, 2.0]
    assert store.get(4)["last"].tolist() == [1.0, 2.0]
    assert store.get(5)["last"].tolist() == [7.0, 8.0]


def test_join_copies_so_that_the_next_client_does_not_write_into_it() -> None:
    store, moving = make_store(), torch.zeros(3)
    store.put(0, store.join({"control": moving, "last": torch.zeros(2)}))
    moving.fill_(9)
    assert store.get(0)["control"].tolist() == [0.0] * 3


def test_precision_is_the_models() -> None:
    store = ClientStateStore({"control": torch.zeros(2, dtype=torch.float64)})
    third = torch.full((2,), 1 / 3, dtype=torch.float64)
    store.put(0, store.join({"control": third}))
    assert torch.equal(store.get(0)["control"], third)


def test_beyond_the_budget_states_lie_on_disk_and_are_the_same() -> None:
    store = ClientStateStore({"control": torch.zeros(100)}, budget=1000)  # room for two states of 400 bytes
    states = {c: torch.arange(100.0) + c for c in range(5)}
    for client, flat in states.items():
        store.put(client, flat.clone())
    assert store.num_spilled == 3
    assert store.clients() == [0, 1, 2, 3, 4]
    assert all(torch.equal(store.flat(c), flat) for c, flat in states.items())
    for client in states:
        store.put(client, states[client] * 2)
    assert store.num_spilled == 3
    assert all(torch.equal(store.get(c)["control"], flat * 2) for c, flat in states.items())


@pytest.mark.parametrize("budget", [float("inf"), 0])
def test_a_backup_is_put_back_whatever_happened_since(budget: float) -> None:
    store = ClientStateStore({"control": torch.zeros(3)}, budget)
    store.put(1, torch.ones(3))
    backup = store.backup([1, 2])
    store.put(1, torch.full((3,), 7.0))
    store.put(2, torch.full((3,), 8.0))
    store.restore(backup)
    assert store.clients() == [1]
    assert store.flat(1).tolist() == [1.0] * 3
    assert store.flat(2).tolist() == [0.0] * 3


HOMES = {0: 0, 1: 1, 2: 2, 3: 0, 4: 1, 5: 2, 6: 0}


@pytest.mark.parametrize(
    "ranks",
    [[0, 1, 2, 0, 1, 2, 0], [1, 2, 0, 1, 2, 0, 1], [0, 0, 0, 0, 0, 0, 0], [2, 2, 1, 0, 0, 2, 1]],
    ids=["all at home", "all away", "all on one rank", "mixed"],
)
def test_states_reach_the_training_rank_and_return_home_changed(ranks: list[int]) -> None:
    cohort = list(HOMES)
    homes = [HOMES[c] for c in cohort]
    ends: dict[int, dict[int, list[float]]] = {}

    def work(world: PostOffice) -> None:
        store = make_store()
        for client, home in HOMES.items():
            if home == world.rank and client != 6:  # 6 has never trained
                store.put(client, torch.full((5,), float(client)))
        for addend in (100.0, 1000.0):
            guests = fetch_away(world, store, cohort, homes, ranks)
            away = {c for c, h, r in zip(cohort, homes, ranks, strict=True) if r == world.rank != h}
            assert set(guests) == away
            returned = {}
            for client, home, rank in zip(cohort, homes, ranks, strict=True):
                if rank == world.rank:
                    new = (store.flat(client) if home == world.rank else guests[client]) + addend
                    returned |= {client: new} if home != world.rank else {}
                    if home == world.rank:
                        store.put(client, new)
            return_home(world, store, cohort, homes, ranks, returned)
        ends[world.rank] = {c: store.flat(c).tolist() for c in store.clients()}

    worlds = on_ranks(3, work)
    assert {c for found in ends.values() for c in found} == set(cohort)
    for rank, found in ends.items():
        assert all(HOMES[c] == rank for c in found)
        for client, flat in found.items():
            start = [0.0, 0.0, 0.0, 7.0, 8.0] if client == 6 else [float(client)] * 5
            assert flat == [v + 1100.0 for v in start]
    pairs = {(h, r) for h, r in zip(homes, ranks, strict=True) if h != r}
    assert sum(w.calls["exchange"] for w in worlds) == 4 * len(pairs)  # one buffer per pair, there and back, two rounds


def test_who_is_not_in_the_cohort_does_not_travel() -> None:
    def work(world: PostOffice) -> None:
        store = make_store()
        store.put(10 + world.rank, torch.ones(5))
        before = store.flat(10 + world.rank)
        guests = fetch_away(world, store, [0], [0], [1])
        return_home(world, store, [0], [0], [1], {c: f + 1 for c, f in guests.items()})
        assert store.flat(10 + world.rank) is before
        assert store.clients() == ([0, 10] if world.rank == 0 else [11])

    on_ranks(2, work)


def test_without_state_nothing_travels() -> None:
    def work(world: PostOffice) -> None:
        store = ClientStateStore({})
        assert store.size == 0
        assert fetch_away(world, store, [0, 1], [0, 1], [1, 0]) == {}
        return_home(world, store, [0, 1], [0, 1], [1, 0], {})
        assert world.calls["exchange"] == 0

    on_ranks(2, work)
