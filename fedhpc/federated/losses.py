"""What it takes to redo a round whose ranks were lost: the clients' states before it, and who is left out of it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fedhpc.federated.client_state import ClientStateStore


class Losses:
    """One rank's notes for the case that other ranks are lost; empty in a run that loses none."""

    def __init__(self) -> None:
        self._round = -1
        self._before: dict[int, Tensor | None] = {}
        self.left_out: dict[int, frozenset[int]] = {}
        """Clients that take no part in a round; root's are those that count."""
        self.homeless: frozenset[int] = frozenset()
        """Clients whose home was lost in a recovery that is not complete."""

    def remember(self, states: ClientStateStore, round: int, cohort: Sequence[int]) -> None:
        """Keep the states of a cohort as they are before its round."""
        self._round, self._before = round, states.backup(cohort)

    def put_back(self, states: ClientStateStore, round: int) -> None:
        """Undo what a round that is to be redone has changed here, if it has begun here."""
        if self._round >= round:
            states.restore(self._before)

    def leave_out(self, round: int, clients: Sequence[int]) -> None:
        """Leave further clients out of a round; from the next on they take part again."""
        self.homeless |= frozenset(clients)
        self.left_out[round] = self.left_out.get(round, frozenset()) | frozenset(clients)

    def without_lost(self, round: int, cohort: tuple[int, ...]) -> tuple[int, ...]:
        """A round's cohort without those who were lost in it; the whole cohort if nobody would be left."""
        lost = self.left_out.get(round, frozenset())
        return tuple(c for c in cohort if c not in lost) or cohort
