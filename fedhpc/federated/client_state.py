"""Vectors that stay with a client: kept at its home rank, sent only when it trains away from home."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from fedhpc.comm.world import World

ClientVectors = dict[str, Tensor]


class ClientStateStore:
    """Per-client vectors of the clients at home on this rank, on the host; written whole, never in part.

    States are kept in memory up to a budget. Beyond it new ones go to a file on node-local disk (TMPDIR) that is
    mapped into memory and has no name any more, so that it ends with the process.

    Args:
        initial: the named vectors of a client that never trained (zeros, for most).
        budget: bytes of memory for states.
    """

    def __init__(self, initial: ClientVectors, budget: float = float("inf")) -> None:
        self.names = tuple(initial)
        self._sizes = [v.numel() for v in initial.values()]
        self._initial = torch.cat([v.reshape(-1) for v in initial.values()]) if initial else torch.empty(0)
        self._states: dict[int, Tensor] = {}
        self._spilled: dict[int, Tensor] = {}
        self._budget = budget

    @property
    def size(self) -> int:
        """Elements of one client's state."""
        return self._initial.numel()

    def flat(self, client: int) -> Tensor:
        """[size] state of a client as one buffer; not to be written to."""
        kept = self._states.get(client)
        return kept if kept is not None else self._spilled.get(client, self._initial)

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
        if client in self._spilled:
            self._spilled[client].copy_(flat)
        elif client in self._states or (len(self._states) + 1) * flat.nbytes <= self._budget:
            self._states[client] = flat
        else:
            self._spilled[client] = _mapped_like(flat)

    @property
    def num_spilled(self) -> int:
        """How many clients' states lie on disk."""
        return len(self._spilled)

    def backup(self, clients: Iterable[int]) -> dict[int, Tensor | None]:
        """Copies of the states of some clients, None for a client without one; for `restore`."""
        own = set(self.clients())
        return {c: self.flat(c).clone() if c in own else None for c in clients}

    def restore(self, backup: dict[int, Tensor | None]) -> None:
        """Put states back as they were at `backup`."""
        for client, flat in backup.items():
            if flat is not None:
                self.put(client, flat)
            else:
                self._states.pop(client, None)
                self._spilled.pop(client, None)

    def clients(self) -> list[int]:
        """Clients that have a state of their own."""
        return sorted([*self._states, *self._spilled])


def _mapped_like(flat: Tensor) -> Tensor:
    """A copy of a state in a nameless file in TMPDIR, mapped into memory.

    Raises:
        OSError: the disk is full; names the folder.
    """
    with tempfile.TemporaryFile(prefix="fedhpc-state-") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, flat.nbytes)  # a full disk shows here, not as a SIGBUS later
        except OSError as error:
            raise OSError(error.errno, error.strerror, tempfile.gettempdir()) from error
        values = np.memmap(file, dtype=flat.numpy().dtype, mode="r+", shape=tuple(flat.shape))
    mapped = torch.from_numpy(values)
    return mapped.copy_(flat)


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
