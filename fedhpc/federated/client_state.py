"""Vectors that stay with a client: kept at its home rank, sent only when it trains away from home."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from fedhpc.comm.world import World

ClientVectors = dict[str, Tensor]


class ClientStateStore:
    """Per-client vectors of the clients at home on this rank, on the host.

    Args:
        initial: the named vectors of a client that never trained (zeros, for most).
    """

    def __init__(self, initial: ClientVectors) -> None:
        self.names = tuple(initial)
        self._sizes = [v.numel() for v in initial.values()]
        self._initial = torch.cat([v.reshape(-1) for v in initial.values()]) if initial else torch.empty(0)
        self._states: dict[int, Tensor] = {}

    @property
    def size(self) -> int:
        """Elements of one client's state."""
        return self._initial.numel()

    def flat(self, client: int) -> Tensor:
        """[size] state of a client as one buffer; not to be written to."""
        return self._states.get(client, self._initial)

    def split(self, flat: Tensor) -> ClientVectors:
        """The named views of one flat state."""
        return dict(zip(self.names, flat.split(self._sizes), strict=True))

    def join(self, vectors: ClientVectors) -> Tensor:
        """One flat host state, a copy, from named vectors."""
        return torch.cat([vectors[name].detach().to("cpu", self._initial.dtype).reshape(-1) for name in self.names])

    def get(self, client: int) -> ClientVectors:
        """State of a client by name."""
        return self.split(self.flat(client))

    def put(self, client: int, flat: Tensor) -> None:
        """Replace a client's state."""
        self._states[client] = flat

    def clients(self) -> list[int]:
        """Clients that have a state of their own."""
        return sorted(self._states)


def fetch_away(
    world: World, store: ClientStateStore, cohort: Sequence[int], homes: Sequence[int], ranks: Sequence[int]
) -> dict[int, Tensor]:
    """Send the state of clients that train away from home, and receive that of guests here; collective.

    `homes` and `ranks` are the home rank and the training rank of each client of the cohort.

    Returns:
        Flat states of the guests on this rank.
    """
    return _move(world, store, cohort, homes, ranks, {c: store.flat(c) for c in cohort if store.names})


def return_home(
    world: World,
    store: ClientStateStore,
    cohort: Sequence[int],
    homes: Sequence[int],
    ranks: Sequence[int],
    updated: dict[int, Tensor],
) -> None:
    """Bring the states of guests back to their homes; collective. `updated` holds the guests' new flat states."""
    for client, flat in _move(world, store, cohort, ranks, homes, updated).items():
        store.put(client, flat)


def _move(
    world: World,
    store: ClientStateStore,
    cohort: Sequence[int],
    sources: Sequence[int],
    targets: Sequence[int],
    states: dict[int, Tensor],
) -> dict[int, Tensor]:
    """Move flat states of the clients whose source and target differ, one fused buffer per pair of ranks."""
    if not store.names:
        return {}
    outgoing: dict[int, list[int]] = {}
    incoming: dict[int, list[int]] = {}
    for client, source, target in zip(cohort, sources, targets, strict=True):
        if source == target:
            continue
        if source == world.rank:
            outgoing.setdefault(target, []).append(client)
        elif target == world.rank:
            incoming.setdefault(source, []).append(client)
    length = store.size
    sends = {rank: torch.cat([states[c] for c in clients]) for rank, clients in outgoing.items()}
    like = store.flat(cohort[0])
    receives = {rank: like.new_empty(len(clients) * length) for rank, clients in incoming.items()}
    world.exchange(sends, receives)
    return {
        client: receives[rank][i * length : (i + 1) * length].clone()
        for rank, clients in incoming.items()
        for i, client in enumerate(clients)
    }
