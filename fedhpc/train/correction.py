"""What a federated algorithm adds to a client's gradient (`federated` decides, `solver` applies)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Correction:
    """Extra terms of one local step `y ← y - η·(clip(g + linear + pull·(y - anchor)) + λ·y + decay·y)`.

    Attributes:
        linear: [num_weights] constant term inside the clip.
        pull: factor of the proximal term inside the clip.
        anchor: [num_weights] point the proximal term pulls to; needed when `pull` is not 0.
        decay: factor of y outside the clip, beside weight decay.
    """

    linear: Tensor | None = None
    pull: float = 0.0
    anchor: Tensor | None = None
    decay: float = 0.0
