"""What a client carries and does beside its federated rule: kept optimizers, own layers, averages over steps."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

Carried = dict[str, Tensor]
"""Named vectors that stay with a client."""


class ClientExtension:
    """Adds to every client's local training, whatever the federated rule; the base does nothing.

    One object serves all clients of a rank, one after another. What must outlive a round is carried: the engine keeps
    it at the client's home, sends it along when the client trains elsewhere, and checkpoints it. A client that diverges
    keeps what it carried before.

    Attributes:
        moves_start: whether `begin` or `place` replace weights; the federated rule then sees the replaced ones as the
            broadcast.
    """

    moves_start: ClassVar[bool] = False

    def initial(self) -> Carried:
        """What a client that never trained carries; names begin with `_`."""
        return {}

    def begin(self, client: int, round: int, carried: Carried) -> None:
        """The broadcast model is in place and the optimizer fresh: take up what this client carries."""

    def after_step(self, num_steps: int) -> None:
        """A local step was taken, the `num_steps`-th of this round."""

    def end(self) -> Carried:
        """Local training is over: what the client carries now, with the names of `initial`."""
        return {}

    def place(self, client: int, round: int, carried: Carried) -> None:
        """The evaluated model is in place: make it this client's own; nothing is kept."""
